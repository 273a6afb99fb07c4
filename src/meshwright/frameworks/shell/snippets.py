"""`python -c "..."` and `python - <<EOF` inside scripts: what a few lines of arithmetic would print.

The lines are read from the syntax tree with the values that `python_values` knows; nothing is run.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from meshwright.frameworks.python_values import Scope, value_of
from meshwright.frameworks.reading import Source, Value
from meshwright.frameworks.shell.text import Text

if TYPE_CHECKING:
    from meshwright.frameworks.shell.evaluate import Shell, Status

PYTHONS = ("python", "python3", "python2")
MAX_CODE = 5_000
MAX_STATEMENTS = 200


def run(shell: Shell, words: list[Text], prefix: dict[str, Text]) -> tuple[Status] | None:
    """A few lines of Python in the script itself, when they only compute and print."""
    found = code_of([word.plain for word in words], shell.stdin.plain if shell.stdin else None)
    if found is None:
        return None
    texts = [*words, *([shell.stdin] if shell.stdin is not None else [])]
    names = frozenset().union(*(shell.unknowns.names(text) for text in texts))
    if names:
        shell.output.append(shell.unknowns.text(names, words[0].mark))
        return (None,)
    environment = {name: text.plain for name, text in {**shell.state.environment(), **prefix}.items()}
    shell.budget.spend(20, len(found[0]))
    said = printed(*found, environment)
    if said is None:
        return None
    shell.output.append(Text.of(said, words[-1].mark))
    return (0,)


def code_of(words: Sequence[str], stdin: str | None) -> tuple[str, list[str]] | None:
    """(code, its arguments) of a Python whose program stands in the script; None for any other command."""
    if not words or words[0].rsplit("/", 1)[-1] not in PYTHONS:
        return None
    rest = [word for word in words[1:] if word not in ("-u", "-B", "-I", "-S", "-E")]
    if rest[:1] == ["-c"] and len(rest) > 1:
        return rest[1], rest[2:]
    if (not rest or rest[0] == "-") and stdin is not None:
        return stdin, rest[1:]
    return None


def printed(code: str, arguments: Sequence[str], environment: Mapping[str, str]) -> str | None:
    """What the code prints; None where it does more than assign, compute and print."""
    if len(code) > MAX_CODE:
        return None
    try:
        module = ast.parse(code.strip("\n") if "\n" in code else code.strip())
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    scope = Scope("", environment=environment)
    here = Source(kind="stated")
    scope.values |= {f"sys.argv[{n}]": Value(word, here) for n, word in enumerate(["-c", *arguments])}
    out: list[str] = []
    try:
        done = _statements(module.body, scope, out, [MAX_STATEMENTS])
    except RecursionError:
        return None
    return "".join(out) if done else None


def _statements(body: Sequence[ast.stmt], scope: Scope, out: list[str], left: list[int]) -> bool:
    for node in body:
        left[0] -= 1
        if left[0] < 0 or not _statement(node, scope, out, left):
            return False
    return True


def _statement(node: ast.stmt, scope: Scope, out: list[str], left: list[int]) -> bool:
    if isinstance(node, (ast.Import, ast.ImportFrom, ast.Pass)):
        return True
    if isinstance(node, ast.Assign):
        return all(_assign(target, node.value, scope) for target in node.targets)
    if isinstance(node, ast.AugAssign) and isinstance(node.target, ast.Name):
        return _assign(node.target, ast.copy_location(_sum(node), node), scope)
    if isinstance(node, ast.If):
        condition = value_of(node.test, scope)
        if condition is None:
            return False
        return _statements(node.body if condition.value else node.orelse, scope, out, left)
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
        return _print(node.value, scope, out)
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)


def _sum(node: ast.AugAssign) -> ast.BinOp:
    assert isinstance(node.target, ast.Name)
    name = ast.copy_location(ast.Name(node.target.id, ast.Load()), node)
    return ast.copy_location(ast.BinOp(name, node.op, node.value), node)


def _assign(target: ast.expr, node: ast.expr, scope: Scope) -> bool:
    if isinstance(target, (ast.Tuple, ast.List)) and isinstance(node, (ast.Tuple, ast.List)):
        if len(target.elts) != len(node.elts):
            return False
        values = [value_of(part, scope) for part in node.elts]
        for one, value in zip(target.elts, values, strict=True):
            if not isinstance(one, ast.Name) or value is None:
                return False
            scope.values[one.id] = value
        return True
    value = value_of(node, scope)
    if not isinstance(target, ast.Name) or value is None:
        return False
    scope.values[target.id] = replace(value)
    return True


def _print(node: ast.Call, scope: Scope, out: list[str]) -> bool:
    """`print(a, b, sep=.., end=..)` and `sys.stdout.write(x)`."""
    name = ast.unparse(node.func)
    if name not in ("print", "sys.stdout.write"):
        return False
    options = {"sep": " ", "end": "\n" if name == "print" else ""}
    for keyword in node.keywords:
        if keyword.arg == "flush":
            continue
        value = value_of(keyword.value, scope)
        if keyword.arg not in options or value is None:
            return False
        options[keyword.arg] = str(value.value)
    parts: list[str] = []
    for argument in node.args:
        starred = isinstance(argument, ast.Starred)
        value = value_of(argument.value if isinstance(argument, ast.Starred) else argument, scope)
        if value is None:
            return False
        many = starred and isinstance(value.value, tuple)
        parts += (
            [str(item) for item in value.value]
            if many and isinstance(value.value, tuple)
            else [_shown(value)]
        )
    out.append(options["sep"].join(parts) + options["end"])
    return True


def _shown(value: Value) -> str:
    return str(list(value.value)) if isinstance(value.value, tuple) else str(value.value)
