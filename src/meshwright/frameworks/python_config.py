"""Configurations written in Python, read from the syntax tree; nothing is imported or run.

Understood: `cfg.model.x = N`, `recipe.trainer.strategy.x = N`, `model = cfg.model; model.x = N`, calls with
keyword arguments (`GPTModelProvider(...)`, `initialize_model_parallel(...)`, `run.Config(MegatronStrategy,
...)`, `llm.llama3_70b.pretrain_recipe(...)`), setattr, conditions that are settled, parameters of functions.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

from meshwright.errors import QuestionError
from meshwright.frameworks.documents import Flat
from meshwright.frameworks.dotted import is_option
from meshwright.frameworks.python_branches import one_of
from meshwright.frameworks.python_environment import late_environment
from meshwright.frameworks.python_values import (
    Scope,
    class_values,
    command_line_defaults,
    dotted,
    literal_items,
    value_of,
)
from meshwright.frameworks.reading import Note, Source, Unknown, Value
from meshwright.frameworks.spelling import canonical

MAX_PYTHON = 400_000
PROVIDERS = ("Provider", "TransformerConfig", "ModelConfig", "Config", "MegatronStrategy")
CALLS = ("initialize_model_parallel", "MegatronStrategy")
FROM_HUB = ("from_hf_pretrained", "from_pretrained", "from_hf_config", "import_ckpt")
MACHINES = ("num_nodes", "num_gpus_per_node", "nodes", "devices", "gpus_per_node", "ntasks_per_node")
REFILLS = ("update", "setdefault", "pop", "popitem", "clear")
"""Methods after which the items of a dict are not those that were written."""
MAX_DEPTH = 60
MAX_INSIDE = 8
"""Functions that are read inside each other."""


@dataclass
class PythonConfig:
    """One configuration of a file: a function, or the module's top level."""

    name: str
    flat: Flat = field(default_factory=dict)
    plain: dict[str, Value] = field(default_factory=dict)
    """Keyword arguments of model providers and of initialize_model_parallel, in Megatron's names."""
    open: dict[str, Unknown] = field(default_factory=dict)
    """What is set to something that the file does not settle, by dotted or plain name."""
    recipe: Value | None = None
    model: Value | None = None
    notes: tuple[Note, ...] = ()

    @property
    def says_something(self) -> bool:
        """Whether it sets anything, or changes a recipe by what the file leaves open."""
        options = (canonical(name.rpartition(".")[2], None)[0] for name in self.open if self.recipe)
        return bool(self.flat or self.plain or any(is_option(name) for name in options))

    def put(self, path: str, value: Value) -> None:
        """An option by its dotted name, or by a plain one that Megatron knows."""
        self.open.pop(path, None)
        if "." not in path and is_option(canonical(path, None)[0]):
            key, plain = canonical(path, value.value)
            self.plain[key] = Value(plain, value.source)
        else:
            self.flat[path] = value

    def leave_open(self, path: str, node: ast.expr, file: str) -> None:
        """An option whose value is not known here."""
        shown = ast.unparse(node)[:60]
        for known in (self.flat, self.plain):
            known.pop(path, None)
        how = f"it is {shown} ({file}:{node.lineno})"
        self.open[path] = Unknown(option=path, needs=(shown,), how=how, line=node.lineno)


@dataclass
class Functions:
    """The functions of a file, and which of them have been read where they are called."""

    home: Scope
    nodes: dict[str, ast.FunctionDef | ast.AsyncFunctionDef]
    calls: dict[str, list[ast.Call]]
    read: set[str] = field(default_factory=set)
    copied: list[int] = field(default_factory=lambda: [0])


@dataclass
class Walk:
    """One walk through a function: where it is, and what it has found."""

    scope: Scope
    config: PythonConfig
    functions: Functions
    depth: int = 0


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


def read(text: str, file: str, environment: Mapping[str, str] | None = None) -> list[PythonConfig]:
    """Every configuration of the file that sets something of a training."""
    module = tree_of(text, file)
    scope = Scope(file, environment=environment or {})
    scope.values["__name__"] = Value("__main__", Source(file=file))
    top = PythonConfig("")
    found: list[PythonConfig] = []
    nodes = [n for n in ast.walk(module) if isinstance(n, (ast.FunctionDef, ast.AsyncFunctionDef))]
    functions = Functions(scope, {node.name: node for node in nodes}, _calls(module))
    try:
        scope.values |= command_line_defaults(module, scope)
        class_values(module, scope)
        _statements(module.body, Walk(scope, top, functions), 0)
        for node in _callers_first(nodes):
            if node.name in functions.read:
                continue
            config = PythonConfig(node.name)
            inner = scope.inner(_parameters(node, scope, functions.calls.get(node.name, [])))
            _statements(node.body, Walk(inner, config, functions), 0)
            found.append(config)
    except RecursionError:
        raise QuestionError(f"{file} is nested too deeply for a config") from None
    notes = late_environment(module)
    found = [config for config in found if config.name not in functions.read]
    kept = [config for config in (top, *found) if config.says_something]
    for config in kept:
        config.notes = notes
    if not kept and notes:
        return [PythonConfig("", notes=notes)]
    if len(kept) == 1:
        kept[0].name = ""
    return kept


def _callers_first(
    nodes: list[ast.FunctionDef | ast.AsyncFunctionDef],
) -> list[ast.FunctionDef | ast.AsyncFunctionDef]:
    """`main` and its like before the functions they call, which are then read where they are called."""
    return sorted(nodes, key=lambda node: node.name not in ("main", "run", "cli"))


def _calls(module: ast.Module) -> dict[str, list[ast.Call]]:
    """Calls of plain names, for functions that are called once."""
    found: dict[str, list[ast.Call]] = {}
    for node in ast.walk(module):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            found.setdefault(node.func.id, []).append(node)
    return found


def _parameters(
    node: ast.FunctionDef | ast.AsyncFunctionDef, scope: Scope, calls: list[ast.Call]
) -> dict[str, Value | None]:
    """What a function's parameters are: as its one call says, else their defaults; None where open."""
    arguments = [*node.args.posonlyargs, *node.args.args]
    pairs = list(zip(arguments[len(arguments) - len(node.args.defaults) :], node.args.defaults, strict=True))
    pairs += [
        (a, d) for a, d in zip(node.args.kwonlyargs, node.args.kw_defaults, strict=True) if d is not None
    ]
    found: dict[str, Value | None] = {a.arg: None for a in [*arguments, *node.args.kwonlyargs]}
    for argument, default in pairs:
        value = value_of(default, scope)
        if value is not None:
            source = Source(kind="argument", file=scope.file, line=argument.lineno, name=argument.arg)
            found[argument.arg] = Value(value.value, source)
    if len(calls) == 1:
        given = dict(zip((a.arg for a in arguments), calls[0].args, strict=False))
        given |= {keyword.arg: keyword.value for keyword in calls[0].keywords if keyword.arg}
        for name, expression in given.items():
            found[name] = value_of(expression, scope)
            if found[name] is None:
                found |= {f"{name}.{key}": item for key, item in literal_items(expression, scope).items()}
    return found


def _statements(body: list[ast.stmt], walk: Walk, depth: int) -> None:
    if depth > MAX_DEPTH:
        raise RecursionError
    for node in body:
        if isinstance(node, (ast.Assign, ast.AnnAssign)):
            targets: list[ast.expr] = [*node.targets] if isinstance(node, ast.Assign) else [node.target]
            if node.value is not None:
                _assign(targets, node.value, walk)
        elif isinstance(node, ast.AugAssign):
            before = ast.copy_location(ast.parse(ast.unparse(node.target), mode="eval").body, node)
            _assign([node.target], ast.copy_location(ast.BinOp(before, node.op, node.value), node), walk)
        elif isinstance(node, (ast.Expr, ast.Return)) and isinstance(node.value, ast.Call):
            _call(node.value, "", walk)
        elif isinstance(node, ast.If):
            _if(node, walk, depth)
        elif isinstance(node, ast.With):
            _statements(node.body, walk, depth + 1)
        elif isinstance(node, (ast.For, ast.While)):
            _loop(node, walk, depth)
        elif isinstance(node, ast.Try):
            _statements(node.body, walk, depth + 1)
            failed = ast.copy_location(ast.Name("an_exception", ast.Load()), node)
            _one_of([[], *(handler.body for handler in node.handlers)], failed, walk, depth)
            _statements([*node.orelse, *node.finalbody], walk, depth + 1)
        elif isinstance(node, ast.Match):
            _one_of([[], *(case.body for case in node.cases)], node.subject, walk, depth)


def _if(node: ast.If, walk: Walk, depth: int) -> None:
    """The branch that is taken; where that is not settled, what both set alike."""
    condition = value_of(node.test, walk.scope)
    if condition is not None:
        _statements(node.body if condition.value else node.orelse, walk, depth + 1)
    else:
        _one_of([node.body, node.orelse], node.test, walk, depth)


def _one_of(bodies: Sequence[list[ast.stmt]], test: ast.expr, walk: Walk, depth: int) -> None:
    if any(bodies):
        ways = [partial(_statements, body, walk, depth + 1) for body in bodies]
        one_of(ways, test, walk.scope, walk.config, walk.functions.copied)


def _loop(node: ast.For | ast.While, walk: Walk, depth: int) -> None:
    """One round; a name that a round changes is open in it and behind it."""
    stored = {
        one.id for one in ast.walk(node) if isinstance(one, ast.Name) and isinstance(one.ctx, ast.Store)
    }
    before = {name: walk.scope.values.pop(name) for name in stored if name in walk.scope.values}
    _statements(node.body, walk, depth + 1)
    for name, value in before.items():
        after = walk.scope.values.get(name)
        if after is not None and after.value != value.value:
            del walk.scope.values[name]


def _assign(targets: list[ast.expr], node: ast.expr, walk: Walk) -> None:
    for target in targets:
        if isinstance(target, (ast.Tuple, ast.List)):
            parts = node.elts if isinstance(node, (ast.Tuple, ast.List)) else []
            if len(parts) == len(target.elts):
                for inner, part in zip(target.elts, parts, strict=True):
                    _assign([inner], part, walk)
            continue
        if isinstance(target, ast.Name):
            _name(target.id, node, walk)
        elif isinstance(target, ast.Subscript):
            _subscript(target, node, walk)
        elif (path := _path(target, walk.scope)) is not None and "." in path:
            _option(path.split(".", 1)[1], node, walk)


def _name(name: str, node: ast.expr, walk: Walk) -> None:
    """A name: a value, a literal dict, another name for a part of the configuration, an object."""
    scope = walk.scope
    scope.aliases.pop(name, None)
    scope.forget(name)
    value = value_of(node, scope)
    if value is not None:
        scope.values[name] = value
        return
    scope.values.pop(name, None)
    items = literal_items(node, scope)
    if items:
        for key, item in items.items():
            scope.settle(f"{name}[{key!r}]", item)
            scope.settle(f"{name}.{key}", item)
    elif isinstance(node, ast.Attribute) and (path := _path(node, scope)) is not None and "." in path:
        scope.aliases[name] = path
    elif isinstance(node, ast.Call):
        _call(node, "", walk)


def _subscript(target: ast.Subscript, node: ast.expr, walk: Walk) -> None:
    """`CONFIG["tp"] = 4`; with a key that is open none of its items is known any more."""
    base, key, value = dotted(target.value), value_of(target.slice, walk.scope), value_of(node, walk.scope)
    if base is None:
        return
    if key is None:
        walk.scope.forget(base)
        return
    for name in (f"{base}[{key.value!r}]", f"{base}.{key.value}"):
        walk.scope.settle(name, value)


def _path(node: ast.expr, scope: Scope) -> str | None:
    """A dotted name, its first part replaced by what it stands for."""
    path = dotted(node)
    if path is None:
        return None
    head, dot, rest = path.partition(".")
    return f"{scope.aliases[head]}{dot}{rest}" if head in scope.aliases else path


def _option(path: str, node: ast.expr, walk: Walk) -> None:
    """An option set to an expression."""
    value = value_of(node, walk.scope) or _precision(node, walk.scope)
    walk.scope.options.pop(path, None)
    if value is not None:
        walk.config.put(path, value)
        walk.scope.options[path] = value
    elif isinstance(node, ast.Call) and (node.keywords or node.args):
        _call(node, path, walk)
        if not any(name.startswith(f"{path}.") for name in walk.config.flat):
            walk.config.leave_open(path, node, walk.scope.file)
    elif not isinstance(node, (ast.Call, ast.Dict, ast.Lambda)):
        walk.config.leave_open(path, node, walk.scope.file)


def _precision(node: ast.expr, scope: Scope) -> Value | None:
    """`get_mixed_precision_config("bf16_mixed")` is the name that it is given."""
    if not (isinstance(node, ast.Call) and len(node.args) == 1 and not node.keywords):
        return None
    named = (dotted(node.func) or "").split(".")[-1] == "get_mixed_precision_config"
    return value_of(node.args[0], scope) if named else None


def _inside(node: ast.Call, walk: Walk) -> bool:
    """Read a function of this file where it is called, if that is its only call."""
    functions = walk.functions
    name = node.func.id if isinstance(node.func, ast.Name) else ""
    calls, body = functions.calls.get(name, []), functions.nodes.get(name)
    if body is None or len(calls) != 1 or name in functions.read or walk.depth > MAX_INSIDE:
        return False
    functions.read.add(name)
    given = _parameters(body, replace(walk.scope), calls)
    inner = functions.home.inner(given)
    inner.options = walk.scope.options
    _statements(body.body, replace(walk, scope=inner, depth=walk.depth + 1), 0)
    return True


def _call(node: ast.Call, path: str, walk: Walk) -> None:
    """Keyword arguments of providers and recipes; nested calls are looked into."""
    scope, config = walk.scope, walk.config
    name = dotted(node.func) or ""
    last = name.split(".")[-1]
    if _inside(node, walk):
        return
    if last == "setattr" and len(node.args) == 3:
        _setattr(node, walk)
        return
    if "recipe" in last or last.endswith("_config"):
        _recipe_call(node, name, last, config, scope.file)
    if last in FROM_HUB:
        _hub(node, walk)
    if last in REFILLS:
        scope.forget(name.removesuffix(f".{last}"))
    provides = last in CALLS or any(last.endswith(end) for end in PROVIDERS) or "recipe" in last
    for argument, expression in _keywords(node, scope):
        value = expression if isinstance(expression, Value) else value_of(expression, scope)
        if value is None:
            assert isinstance(expression, ast.expr)
            if isinstance(expression, ast.Call):
                _call(expression, f"{path}.{argument}" if path else argument, walk)
            elif provides and is_option(canonical(argument, None)[0]):
                config.leave_open(canonical(argument, None)[0], expression, scope.file)
            continue
        if provides or argument in MACHINES:
            key, plain = canonical(argument, value.value)
            config.plain[key] = Value(plain, value.source)
            config.open.pop(key, None)
        if path:
            config.flat[f"{path}.{argument}"] = value
        elif last not in CALLS:
            config.flat.setdefault(argument, value)
    for inner in node.args:
        if isinstance(inner, ast.Call):
            _call(inner, path, walk)


def _keywords(node: ast.Call, scope: Scope) -> list[tuple[str, ast.expr | Value]]:
    """Keyword arguments, `**common` of a literal dict written out."""
    found: list[tuple[str, ast.expr | Value]] = []
    for keyword in node.keywords:
        if keyword.arg is not None:
            found.append((keyword.arg, keyword.value))
            continue
        base = dotted(keyword.value)
        items = literal_items(keyword.value, scope)
        if base is not None:
            start = f"{base}['"
            items = {key[len(start) : -2]: v for key, v in scope.parts(start)}
        found += items.items()
    return found


def _setattr(node: ast.Call, walk: Walk) -> None:
    base, name = _path(node.args[0], walk.scope), value_of(node.args[1], walk.scope)
    if base is not None and name is not None:
        below = f"{base}.{name.value}".split(".", 1)[1]
        _option(below, node.args[2], walk)


def _hub(node: ast.Call, walk: Walk) -> None:
    """`AutoBridge.from_hf_pretrained("org/model")`."""
    named = [value_of(argument, walk.scope) for argument in node.args[:2]]
    texts = [v for v in named if v is not None and isinstance(v.value, str)]
    if texts and walk.config.model is None:
        walk.config.model = texts[0]


def _recipe_call(node: ast.Call, name: str, last: str, config: PythonConfig, file: str) -> None:
    parts = name.split(".")
    if last in ("pretrain_recipe", "finetune_recipe") and len(parts) >= 2:
        config.recipe = Value(parts[-2], Source(file=file, line=node.lineno))
    elif not last.startswith("_"):
        config.recipe = Value(last, Source(file=file, line=node.lineno))
