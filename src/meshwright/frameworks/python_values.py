"""Values of Python expressions, worked out from the syntax tree; nothing is imported or run.

Understood: constants, names, arithmetic, comparisons, `a if c else b`, `min(..)`, `int(..)`,
`os.environ.get("X", "8")`, items of literal dicts and lists, and defaults of argparse options.
"""

from __future__ import annotations

import ast
import math
import operator
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from meshwright.frameworks.reading import Plain, Source, Value
from meshwright.frameworks.spelling import plain_value

OPERATORS: dict[type[ast.operator], Callable[[float, float], float]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.FloorDiv: operator.floordiv,
    ast.Div: operator.truediv,
    ast.Mod: operator.mod,
    ast.Pow: lambda a, b: a**b if abs(b) <= 64 and abs(a) < 2**32 else math.nan,
    ast.LShift: lambda a, b: int(a) << int(b) if 0 <= b < 64 else math.nan,
    ast.RShift: lambda a, b: int(a) >> int(b) if 0 <= b < 64 else math.nan,
}
WHOLE: Mapping[str, Callable[..., Plain]] = {
    "math.ceil": math.ceil,
    "math.floor": math.floor,
    "ceil": math.ceil,
    "floor": math.floor,
    "math.gcd": math.gcd,
    "math.lcm": math.lcm,
    "math.prod": lambda v: math.prod(v),
    "math.log2": math.log2,
    "abs": abs,
    "round": round,
    "sum": sum,
    "math.sqrt": math.sqrt,
    "pow": lambda a, b: a**b if abs(b) <= 64 else None,
}
"""Functions of numbers that launch files use."""
COMPARISONS: dict[type[ast.cmpop], Callable[[Plain, Plain], bool]] = {
    ast.Eq: lambda a, b: a == b,
    ast.NotEq: lambda a, b: a != b,
    ast.Lt: lambda a, b: a < b,  # type: ignore[operator]
    ast.LtE: lambda a, b: a <= b,  # type: ignore[operator]
    ast.Gt: lambda a, b: a > b,  # type: ignore[operator]
    ast.GtE: lambda a, b: a >= b,  # type: ignore[operator]
    ast.Is: lambda a, b: a is b or a == b,
    ast.IsNot: lambda a, b: not (a is b or a == b),
    ast.In: lambda a, b: isinstance(b, (tuple, str)) and a in b,
    ast.NotIn: lambda a, b: isinstance(b, (tuple, str)) and a not in b,
}
CONVERSIONS: Mapping[str, Callable[[Plain], Plain]] = {
    "int": lambda v: int(v) if isinstance(v, (int, float)) else plain_value(str(v)),
    "float": lambda v: float(v) if isinstance(v, (int, float)) else plain_value(str(v)),
    "str": str,
    "bool": bool,
    "len": lambda v: len(v) if isinstance(v, (tuple, str)) else None,
    "list": lambda v: v if isinstance(v, tuple) else None,
    "tuple": lambda v: v if isinstance(v, tuple) else None,
}
ENVIRONMENT = ("os.environ.get", "os.getenv", "environ.get", "getenv")
MAX_ITEMS = 10_000
MAX_PARTS = 2_000
"""Parts of one name that are remembered."""


@dataclass
class Scope:
    """What names stand for at one place of a file.

    values     `x`, `CONFIG['tp']`, and `argparse.tp` for the defaults of command-line options
    aliases    `model` -> `cfg.model`
    """

    file: str
    values: dict[str, Value] = field(default_factory=dict)
    aliases: dict[str, str] = field(default_factory=dict)
    environment: Mapping[str, str] = field(default_factory=dict)
    options: dict[str, Value] = field(default_factory=dict)
    """Options that the configuration has so far, by dotted name without its first part."""
    classes: dict[str, list[tuple[str, ast.expr | None]]] = field(default_factory=dict)
    """Fields of the dataclasses of the file, with their defaults."""
    index: dict[str, dict[str, None]] = field(default_factory=dict)
    """Keys of `values` by the name they begin with: `CONFIG` -> `CONFIG['tp']`; of all scopes of a file."""

    def settle(self, key: str, value: Value | None) -> None:
        """Note the value of a name, or of a part of one (`CONFIG['tp']`, `Sizes.tp`); None: it is open."""
        head = re.split(r"[.\[]", key, maxsplit=1)[0]
        keys = self.index.setdefault(head, {}) if head != key else {}
        if value is None or len(keys) >= MAX_PARTS:
            self.values.pop(key, None)
            return
        keys[key] = None
        self.values[key] = value

    def forget(self, name: str) -> None:
        """Drop the parts of a name that stands for something else now."""
        head = re.split(r"[.\[]", name, maxsplit=1)[0]
        for key in self.index.get(head, ()):
            if key.startswith((f"{name}[", f"{name}.")):
                self.values.pop(key, None)

    def parts(self, start: str) -> list[tuple[str, Value]]:
        """Parts whose key begins like this: `CONFIG['`, `Sizes.`."""
        head = re.split(r"[.\[]", start, maxsplit=1)[0]
        keys = [key for key in self.index.get(head, ()) if key.startswith(start)]
        return [(key, self.values[key]) for key in keys if key in self.values]

    def inner(self, more: Mapping[str, Value | None]) -> Scope:
        """A scope inside this one; None hides a name whose value is not known there."""
        scope = replace(
            self, values=dict(self.values), aliases=dict(self.aliases), options=dict(self.options)
        )
        for name, value in more.items():
            scope.settle(name, value)
        return scope


def dotted(node: ast.expr) -> str | None:
    """`a.b.c` of an attribute chain, None for anything else."""
    parts: list[str] = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    if not isinstance(node, ast.Name):
        return None
    return ".".join([node.id, *reversed(parts)])


def value_of(node: ast.expr, scope: Scope) -> Value | None:
    """The value of an expression, None where it is not settled by the file."""
    here = Source(file=scope.file, line=node.lineno)
    if isinstance(node, ast.Constant):
        plain = node.value
        return Value(plain, here) if isinstance(plain, (str, int, float, bool, type(None))) else None
    if isinstance(node, ast.Name):
        return scope.values.get(node.id)
    if isinstance(node, ast.Attribute):
        return _attribute(node, scope)
    if isinstance(node, ast.Subscript):
        return _item(node, scope, here)
    if isinstance(node, ast.UnaryOp):
        return _unary(node, scope, here)
    if isinstance(node, (ast.List, ast.Tuple)):
        items = [value_of(item, scope) for item in node.elts[:4096]]
        known = [item for item in items if item is not None]
        return Value(tuple(item.value for item in known), here) if len(known) == len(items) else None
    if isinstance(node, ast.BinOp):
        return _binary(node, scope, here)
    if isinstance(node, ast.BoolOp):
        return _logical(node, scope)
    if isinstance(node, ast.Compare):
        return _comparison(node, scope, here)
    if isinstance(node, ast.IfExp):
        condition = value_of(node.test, scope)
        return None if condition is None else value_of(node.body if condition.value else node.orelse, scope)
    if isinstance(node, ast.JoinedStr):
        return _formatted(node, scope, here)
    return _converted(node, scope, here) if isinstance(node, ast.Call) else None


def _formatted(node: ast.JoinedStr, scope: Scope, here: Source) -> Value | None:
    """An f-string of known values, without formats."""
    parts: list[str] = []
    for part in node.values:
        value = value_of(part.value if isinstance(part, ast.FormattedValue) else part, scope)
        formatted = isinstance(part, ast.FormattedValue) and (part.format_spec or part.conversion >= 0)
        if value is None or formatted:
            return None
        parts.append(str(value.value))
    return Value("".join(parts)[:MAX_ITEMS], here)


DTYPES = {"torch.bfloat16": "bf16", "torch.float32": "fp32", "torch.float16": "fp16"}


def _attribute(node: ast.Attribute, scope: Scope) -> Value | None:
    """A default of argparse (`args.tp`), an option that has been set (`cfg.model.seq_length`)."""
    base = node.value
    path = dotted(node)
    if path in DTYPES and "torch" not in scope.values:
        return Value(DTYPES[path], Source(file=scope.file, line=node.lineno))
    if path is not None and scope.options:
        head, _, rest = path.partition(".")
        whole = f"{scope.aliases[head]}.{rest}" if head in scope.aliases else path
        if (known := scope.options.get(whole.partition(".")[2])) is not None:
            return known
    if not isinstance(base, ast.Name) or base.id in scope.aliases:
        return None
    found = scope.values.get(f"{base.id}.{node.attr}")
    named = base.id.rstrip("0123456789") in ("args", "opts", "options", "flags", "cli", "ns", "parsed")
    return found or (scope.values.get(f"argparse.{node.attr}") if named else None)


def _item(node: ast.Subscript, scope: Scope, here: Source) -> Value | None:
    """`CONFIG["tp"]`, `os.environ["TP"]`, `SIZES[0]`."""
    key = value_of(node.slice, scope)
    if key is None:
        return None
    path = dotted(node.value)
    if path in ("os.environ", "environ"):
        return _variable(str(key.value), None, scope, here)
    if path is not None and (found := scope.values.get(f"{path}[{key.value!r}]")) is not None:
        return found
    whole = value_of(node.value, scope)
    index = key.value
    if whole is None or not isinstance(whole.value, tuple) or not isinstance(index, int):
        return None
    if not -len(whole.value) <= index < len(whole.value):
        return None
    return Value(whole.value[index], here)  # type: ignore[arg-type]


def _variable(name: str, default: Value | None, scope: Scope, here: Source) -> Value | None:
    if name in scope.environment:
        return Value(scope.environment[name], Source(kind="given", name=f"--env {name}"))
    if default is None:
        return None
    return Value(default.value, replace(here, kind="environment", name=name))


def _unary(node: ast.UnaryOp, scope: Scope, here: Source) -> Value | None:
    inner = value_of(node.operand, scope)
    if inner is None:
        return None
    if isinstance(node.op, ast.Not):
        return Value(not inner.value, here)
    if isinstance(node.op, ast.USub) and isinstance(inner.value, (int, float)):
        return Value(-inner.value, here)
    return None


def _binary(node: ast.BinOp, scope: Scope, here: Source) -> Value | None:
    left, right = value_of(node.left, scope), value_of(node.right, scope)
    if left is None or right is None:
        return None
    a, b = left.value, right.value
    source = next((v.source for v in (left, right) if v.source.kind == "argument"), here)
    if isinstance(a, tuple) and isinstance(b, int) and isinstance(node.op, ast.Mult):
        return Value(a * b, source) if len(a) * b <= MAX_ITEMS else None
    if isinstance(a, tuple) and isinstance(b, tuple) and isinstance(node.op, ast.Add):
        return Value(a + b, source)
    if isinstance(a, str) and isinstance(b, str) and isinstance(node.op, ast.Add):
        return Value((a + b)[:MAX_ITEMS], source)
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
    if isinstance(result, complex) or result != result:
        return None
    return Value(result, source)


def _logical(node: ast.BoolOp, scope: Scope) -> Value | None:
    """`a or b`, `a and b`: the first that settles it, if all before it are known."""
    found: Value | None = None
    for part in node.values:
        found = value_of(part, scope)
        if found is None or bool(found.value) == isinstance(node.op, ast.Or):
            return found
    return found


def _comparison(node: ast.Compare, scope: Scope, here: Source) -> Value | None:
    left = value_of(node.left, scope)
    for op, right_node in zip(node.ops, node.comparators, strict=True):
        right, holds = value_of(right_node, scope), COMPARISONS.get(type(op))
        if left is None or right is None or holds is None:
            return None
        try:
            if not holds(left.value, right.value):
                return Value(False, here)
        except TypeError:
            return None
        left = right
    return Value(True, here)


def _converted(node: ast.Call, scope: Scope, here: Source) -> Value | None:
    """`int(x)`, `max(a, b)`, `os.environ.get("X", d)`, `cfg.get("x", d)` of a literal dict."""
    name = dotted(node.func)
    if name is None or (node.keywords and name not in ENVIRONMENT):
        return None
    arguments = [value_of(argument, scope) for argument in node.args[:64]]
    if name in ENVIRONMENT and arguments and arguments[0] is not None:
        default = arguments[1] if len(arguments) > 1 else None
        return _variable(str(arguments[0].value), default, scope, here)
    known = [argument for argument in arguments if argument is not None]
    if len(known) != len(arguments) or not known:
        return None
    first = known[0]
    if name.endswith(".get") and (found := scope.values.get(f"{name[:-4]}[{first.value!r}]")) is not None:
        return found
    if name in ("min", "max"):
        numbers = [v.value for v in known if isinstance(v.value, (int, float))]
        if len(numbers) != len(known) or len(known) < 2:
            return None
        return Value((min if name == "min" else max)(numbers), here)
    try:
        if name in WHOLE and all(_is_small(argument.value) for argument in known):
            done, source = WHOLE[name](*(argument.value for argument in known)), here
        elif name in CONVERSIONS and len(known) == 1:
            done, source = CONVERSIONS[name](first.value), first.source
        else:
            return None
    except (ValueError, OverflowError, TypeError, ZeroDivisionError):
        return None
    return None if done is None else Value(done, source)


def _is_small(value: object) -> bool:
    """A number, or numbers, with which no function takes long."""
    if isinstance(value, tuple):
        return len(value) < 100 and all(_is_small(item) for item in value)
    return isinstance(value, (int, float)) and abs(value) < 2**32


def literal_items(node: ast.expr, scope: Scope) -> dict[str, Value]:
    """Items of `{"tp": 4}` or `dict(tp=4)` whose keys and values are settled."""
    found: dict[str, Value] = {}
    if isinstance(node, ast.Dict):
        for key, item in zip(node.keys, node.values, strict=True):
            name = value_of(key, scope) if key is not None else None
            value = value_of(item, scope)
            if name is not None and value is not None:
                found[str(name.value)] = value
    elif isinstance(node, ast.Name):
        start = f"{node.id}."
        found = {key[len(start) :]: value for key, value in scope.parts(start)}
    elif isinstance(node, ast.Call) and dotted(node.func) in scope.classes:
        fields = scope.classes[dotted(node.func) or ""]
        given = {name: default for name, default in fields if default is not None}
        given |= dict(zip((name for name, _ in fields), node.args, strict=False))
        given |= {keyword.arg: keyword.value for keyword in node.keywords if keyword.arg}
        values = {name: value_of(expression, scope) for name, expression in given.items()}
        found = {name: value for name, value in values.items() if value is not None}
    elif isinstance(node, ast.Call) and dotted(node.func) in ("dict", "SimpleNamespace", "Namespace"):
        for keyword in node.keywords:
            value = value_of(keyword.value, scope)
            if keyword.arg is not None and value is not None:
                found[keyword.arg] = value
    return found


def class_values(module: ast.Module, scope: Scope) -> None:
    """Note the fields of the classes of a file, and `Class.x` for those that have a value."""
    for node in module.body:
        if not isinstance(node, ast.ClassDef):
            continue
        fields: list[tuple[str, ast.expr | None]] = []
        for line in node.body:
            if isinstance(line, ast.AnnAssign) and isinstance(line.target, ast.Name):
                fields.append((line.target.id, line.value))
            elif isinstance(line, ast.Assign) and isinstance(line.targets[0], ast.Name):
                fields.append((line.targets[0].id, line.value))
        scope.classes[node.name] = fields
        for name, default in fields:
            value = value_of(default, scope) if default is not None else None
            if value is not None:
                scope.settle(f"{node.name}.{name}", value)


def command_line_defaults(module: ast.Module, scope: Scope) -> dict[str, Value]:
    """`argparse.tp` -> 4 for `parser.add_argument("--tp", type=int, default=4)`."""
    found: dict[str, Value] = {}
    for node in ast.walk(module):
        if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)):
            continue
        if node.func.attr != "add_argument":
            continue
        names = [a.value for a in node.args if isinstance(a, ast.Constant) and isinstance(a.value, str)]
        keywords = {keyword.arg: keyword.value for keyword in node.keywords if keyword.arg}
        long = next((name for name in names if name.startswith("--")), None)
        if long is None:
            continue
        destination = value_of(keywords["dest"], scope) if "dest" in keywords else None
        dest = str(destination.value) if destination else long.lstrip("-").replace("-", "_")
        source = Source(kind="argument", file=scope.file, line=node.lineno, name=long)
        if "default" in keywords:
            default = value_of(keywords["default"], scope)
        else:
            action = value_of(keywords["action"], scope) if "action" in keywords else None
            stores = {"store_true": False, "store_false": True}.get(str(action.value) if action else "")
            default = Value(stores, source) if stores is not None else None
        if default is not None and default.value is not None:
            found[f"argparse.{dest}"] = Value(default.value, source)
    return found
