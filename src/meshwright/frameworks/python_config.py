"""Configurations written in Python, read from the syntax tree; nothing is imported or run.

Understood: `cfg.model.x = N`, `recipe.trainer.strategy.x = N`, calls with keyword arguments
(`GPTModelProvider(...)`, `initialize_model_parallel(...)`, `llm.llama3_70b.pretrain_recipe(...)`),
constants, names assigned before, function parameters with defaults, arithmetic on those.
"""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from meshwright.errors import QuestionError
from meshwright.frameworks.documents import Flat
from meshwright.frameworks.reading import Note, Plain, Source, Value
from meshwright.frameworks.spelling import canonical

MAX_PYTHON = 400_000
OPERATORS: dict[type[ast.operator], Callable[[float, float], float]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.FloorDiv: operator.floordiv,
    ast.Div: operator.truediv,
    ast.Mod: operator.mod,
}
PROVIDERS = ("Provider", "TransformerConfig", "ModelConfig", "Config", "MegatronStrategy")
CALLS = ("initialize_model_parallel", "MegatronStrategy")
CUDA_STARTS = ("init_process_group", "set_device", "synchronize", "initialize_megatron", "current_device")


@dataclass
class PythonConfig:
    """One configuration of a file: a function, or the module's top level."""

    name: str
    flat: Flat = field(default_factory=dict)
    plain: dict[str, Value] = field(default_factory=dict)
    """Keyword arguments of model providers and of initialize_model_parallel, in Megatron's names."""
    recipe: Value | None = None
    notes: tuple[Note, ...] = ()


def tree_of(text: str, file: str) -> ast.Module:
    """Syntax tree of a Python file; QuestionError where it is none."""
    if len(text) > MAX_PYTHON:
        raise QuestionError(
            f"{file} has {len(text):,} characters; a config of more than {MAX_PYTHON:,} is not read"
        )
    try:
        return ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as problem:
        raise QuestionError(f"{file} is not Python that can be read: {str(problem)[:120]}") from None


def read(text: str, file: str) -> list[PythonConfig]:
    """Every configuration of the file that sets something of a training."""
    module = tree_of(text, file)
    scope: dict[str, Value] = {}
    top = PythonConfig("")
    found: list[PythonConfig] = []
    try:
        _statements(module.body, scope, top, file)
        for node in ast.walk(module):
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
                config = PythonConfig(node.name)
                inner = {**scope, **_parameters(node, scope, file)}
                _statements(node.body, inner, config, file)
                found.append(config)
    except RecursionError:
        raise QuestionError(f"{file} is nested too deeply for a config") from None
    notes = _late_environment(module)
    kept = [config for config in (top, *found) if config.flat or config.plain]
    for config in kept:
        config.notes = notes
    if not kept and notes:
        return [PythonConfig("", notes=notes)]
    if len(kept) == 1:
        kept[0].name = ""
    return kept


def _parameters(
    node: ast.FunctionDef | ast.AsyncFunctionDef, scope: Mapping[str, Value], file: str
) -> dict[str, Value]:
    """Defaults of a function's parameters."""
    arguments = [*node.args.posonlyargs, *node.args.args]
    pairs = list(zip(arguments[len(arguments) - len(node.args.defaults) :], node.args.defaults, strict=True))
    pairs += [
        (a, d) for a, d in zip(node.args.kwonlyargs, node.args.kw_defaults, strict=True) if d is not None
    ]
    found: dict[str, Value] = {}
    for argument, default in pairs:
        value = _value(default, scope, file)
        if value is not None:
            source = Source(kind="argument", file=file, line=argument.lineno, name=argument.arg)
            found[argument.arg] = Value(value.value, source)
    return found


def _statements(body: list[ast.stmt], scope: dict[str, Value], config: PythonConfig, file: str) -> None:
    for node in body:
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            continue
        if isinstance(node, (ast.Assign, ast.AnnAssign)):
            targets: list[ast.expr] = [*node.targets] if isinstance(node, ast.Assign) else [node.target]
            if node.value is not None:
                _assign(targets, node.value, scope, config, file)
        elif isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
            _call(node.value, "", scope, config, file)
        elif isinstance(node, (ast.If, ast.With, ast.Try, ast.For, ast.While)):
            _statements(node.body, scope, config, file)
        elif isinstance(node, ast.Return) and isinstance(node.value, ast.Call):
            _call(node.value, "", scope, config, file)


def _assign(
    targets: list[ast.expr], node: ast.expr, scope: dict[str, Value], config: PythonConfig, file: str
) -> None:
    for target in targets:
        path = _dotted(target)
        if isinstance(target, ast.Name):
            value = _value(node, scope, file)
            if value is not None:
                scope[target.id] = value
            elif isinstance(node, ast.Call):
                _call(node, "", scope, config, file)
        elif path is not None and path.count(".") >= 1:
            below = path.split(".", 1)[1]
            value = _value(node, scope, file)
            if value is not None:
                config.flat[below] = value
            elif isinstance(node, ast.Call):
                _call(node, below, scope, config, file)


def _call(node: ast.Call, path: str, scope: dict[str, Value], config: PythonConfig, file: str) -> None:
    """Keyword arguments of providers and recipes; nested calls are looked into."""
    name = _dotted(node.func) or ""
    last = name.split(".")[-1]
    if "recipe" in last or last.endswith("_config"):
        _recipe_call(node, name, last, config, file)
    for keyword in node.keywords:
        if keyword.arg is None:
            continue
        value = _value(keyword.value, scope, file)
        if value is None:
            if isinstance(keyword.value, ast.Call):
                _call(keyword.value, f"{path}.{keyword.arg}" if path else keyword.arg, scope, config, file)
            continue
        if last in CALLS or any(last.endswith(end) for end in PROVIDERS) or "recipe" in last:
            key, plain = canonical(keyword.arg, value.value)
            config.plain[key] = Value(plain, value.source)
        if path:
            config.flat[f"{path}.{keyword.arg}"] = value
        elif last not in CALLS:
            config.flat.setdefault(keyword.arg, value)
    for argument in node.args:
        if isinstance(argument, ast.Call):
            _call(argument, path, scope, config, file)


def _recipe_call(node: ast.Call, name: str, last: str, config: PythonConfig, file: str) -> None:
    parts = name.split(".")
    if last in ("pretrain_recipe", "finetune_recipe") and len(parts) >= 2:
        config.recipe = Value(parts[-2], Source(file=file, line=node.lineno))
    elif not last.startswith("_"):
        config.recipe = Value(last, Source(file=file, line=node.lineno))


def _dotted(node: ast.expr) -> str | None:
    """`a.b.c` of an attribute chain, None for anything else."""
    parts: list[str] = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    if not isinstance(node, ast.Name):
        return None
    return ".".join([node.id, *reversed(parts)])


def _value(node: ast.expr, scope: Mapping[str, Value], file: str) -> Value | None:
    """A constant expression, None where it is none."""
    here = Source(file=file, line=node.lineno)
    if isinstance(node, ast.Constant) and isinstance(node.value, (str, int, float, bool, type(None))):
        return Value(node.value, here)
    if isinstance(node, ast.Name):
        return scope.get(node.id)
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        inner = _value(node.operand, scope, file)
        return Value(-inner.value, here) if inner and isinstance(inner.value, (int, float)) else None
    if isinstance(node, (ast.List, ast.Tuple)):
        items = [_value(item, scope, file) for item in node.elts[:4096]]
        return Value(tuple(i.value for i in items if i), here) if all(items) else None
    if isinstance(node, ast.BinOp):
        return _binary(node, scope, file)
    return None


def _binary(node: ast.BinOp, scope: Mapping[str, Value], file: str) -> Value | None:
    left, right = _value(node.left, scope, file), _value(node.right, scope, file)
    if left is None or right is None:
        return None
    a, b = left.value, right.value
    source = next(
        (v.source for v in (left, right) if v.source.kind == "argument"), Source(file=file, line=node.lineno)
    )
    if isinstance(a, tuple) and isinstance(b, int) and isinstance(node.op, ast.Mult):
        return Value(a * b, source) if len(a) * b <= 10_000 else None
    if isinstance(a, tuple) and isinstance(b, tuple) and isinstance(node.op, ast.Add):
        return Value(a + b, source)
    apply = OPERATORS.get(type(node.op))
    numbers = (
        isinstance(a, (int, float)) and isinstance(b, (int, float)) and abs(a) < 2**63 and abs(b) < 2**63
    )
    if apply is None or not numbers:
        return None
    try:
        result: Plain = apply(a, b)  # type: ignore[arg-type]
    except (ZeroDivisionError, OverflowError):
        return None
    return Value(result, source)


def _late_environment(module: ast.Module) -> tuple[Note, ...]:
    """os.environ assignments after CUDA has started, in the order of the lines."""
    started: int | None = None
    notes: list[Note] = []
    nodes = [node for node in ast.walk(module) if isinstance(node, (ast.Call, ast.Assign))]
    for node in sorted(nodes, key=lambda n: n.lineno):
        if isinstance(node, ast.Call):
            name = _dotted(node.func) or ""
            cuda = ".cuda." in f".{name}." and not name.endswith(("is_available", "device_count"))
            if (cuda or name.split(".")[-1] in CUDA_STARTS) and started is None:
                started = node.lineno
            continue
        for target in node.targets:
            if not (isinstance(target, ast.Subscript) and (_dotted(target.value) or "").endswith("environ")):
                continue
            key = str(target.slice.value) if isinstance(target.slice, ast.Constant) else "a variable"
            if started is not None and key.startswith(("CUDA", "NCCL", "PYTORCH", "NVTE", "NUM_OF_HYBRID")):
                notes.append(
                    Note(
                        id="environment-after-cuda",
                        severity="warn",
                        message=f"{key} is set on line {node.lineno}, after CUDA has started on line "
                        f"{started}, and has no effect: it must be set before CUDA init",
                        fix=f"export {key} in the shell that starts the training",
                        line=node.lineno,
                    )
                )
    return tuple(notes)


def write(flat: Mapping[str, Plain], heading: str, recipe_name: str) -> str:
    """A Python function that applies the options to a Bridge recipe."""
    lines = [f"# {line}" for line in heading.splitlines()]
    lines += ["", "", "def apply(cfg):", f'    """Set the plan on a configuration of {recipe_name}."""']
    lines += [f"    cfg.{path} = {value!r}" for path, value in flat.items()]
    return "\n".join([*lines, "    return cfg", ""])
