"""The English phrases that people read, out of the source, held against the catalog of another language.

    python tools/extract_messages.py            list the phrases that the catalog lacks (exit 1 if any)
    python tools/extract_messages.py --stale    list the phrases of the catalog that the source lost
    python tools/extract_messages.py --all      list every phrase

A phrase is a text in the source with numbered holes where values go: `f"{v.ep} experts"` is `{0} experts`.
Texts are taken from the rooms whose words reach a screen; names, flags, errors and docstrings are not texts.
"""

from __future__ import annotations

import ast
import json
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parent.parent / "src" / "meshwright"
SECTIONS = {
    "rules": ("layout/rules/*.py",),
    "check": (
        "frameworks/extra_rules.py", "frameworks/memory_check.py", "frameworks/sane.py",
        "frameworks/outputs.py", "frameworks/check.py", "frameworks/megatron_lm.py",
        "frameworks/megatron_deepspeed.py", "frameworks/python_config.py", "layout/notation.py",
        "frameworks/python_environment.py",
        "layout/pipeline.py", "frameworks/commands.py", "frameworks/interpolation.py", "frameworks/resume.py",
        "report/comparison.py",
    ),
    "guide": ("planner/guide/*.py", "planner/guide/data/guide.json"),
    "plan": (
        "planner/reasons.py", "planner/nearby.py", "planner/references.py", "planner/remedies.py",
        "planner/answer.py", "cluster/describe.py", "layout/groups.py", "cost/traffic.py", "job/defaults.py",
        "api/planning.py", "api/picturing.py", "planner/place.py", "cost/explain.py", "planner/explaining.py",
        "planner/budget.py", "planner/memory_detail.py", "cost/evidence.py",
    ),
    "report": (
        "report/html.py", "report/passes.py", "report/terminal.py", "report/capacity.py",
        "report/explanation.py", "report/front.py", "report/memory.py", "report/sweep.py", "report/svg/*.py",
    ),
    "oom": ("report/out_of_memory.py", "cost/oom.py", "cost/data/oom.json"),
}  # fmt: skip
"""Files whose texts reach people, by section of the catalog."""
ERRORS = frozenset({"layout/notation.py", "layout/pipeline.py", "report/comparison.py", "cost/oom.py"})
"""Files of which only the errors, and the helpers named below, reach people."""
ERROR_ROOMS = (
    "errors.py", "api/**/*.py", "cli/**/*.py", "cluster/**/*.py", "cost/**/*.py", "frameworks/**/*.py",
    "job/**/*.py", "layout/**/*.py", "model/**/*.py", "planner/**/*.py",
)  # fmt: skip
"""Rooms whose errors reach the person who gave a command, in section `errors`."""
UNHEARD = frozenset(
    {"cost/hardware.py", "cost/hardware_ranks.py", "cost/gpu_data.py", "cost/schedule.py", "cost/timeline.py",
     "cost/observing.py", "layout/ranks.py", "layout/split_problem.py", "model/__init__.py",
     "planner/batch.py", "planner/batch_choice.py", "planner/batch_flags.py", "planner/arguments.py",
     "api/picturing.py",
     "api/profiling.py", "api/verifying.py", "api/batch.py", "cli/agents.py", "cli/serve.py", "cli/ranks.py"}
)  # fmt: skip
"""Files whose errors no command with --lang raises."""
NOT_TEXT = frozenset(
    {"source", "id", "aliases", "area", "enforced_by", "breaks", "passes", "since", "until", "effect",
     "example_framework", "class_", "names", "severity", "launcher", "script", "provider", "initializer",
     "initializer_arguments", "recipes_source", "cited", "fields", "patterns"}
)  # fmt: skip
"""Keyword arguments and fields of data that no screen shows as words."""
NOT_CALLS = frozenset(
    {
        "given",
        "get",
        "gave",
        "on",
        "value",
        "join",
        "attr",
        "replace",
        "getattr",
        "Literal",
        "search",
        "findall",
        "find",
        "rfind",
        "size",
    }
)
CHECKS = frozenset(
    {
        "one_of",
        "positive",
        "fraction",
        "gpu_count",
        "_measure",
        "_at_most",
        "_same_number",
        "_times",
        "_number",
    }
)
"""Functions that check a value and are told what to call it."""
NOT_SHOWN = frozenset({"_markdown", "github", "sarif", "_sarif_rule", "_sarif_result", "_python"})
"""Functions that write files for programs or the docs."""
HELPERS = frozenset(
    {("errors.py", "did_you_mean"), ("frameworks/read.py", "why_unreadable"), ("cost/oom.py", "_stage"),
     ("cost/oom.py", "_causes"), ("cost/oom.py", "read_out_of_memory"),
     ("report/comparison.py", "resume_text")}
)  # fmt: skip
"""Functions that make words, of files whose other texts nobody reads."""
NUMBER = re.compile(r"[,dfge%]$")
"""Formats of numbers."""
PLACE = re.compile(r"\{[a-z_][a-z_0-9]*\}")
PROSE = re.compile(r"(?<![\w\-./=])(?:GPUs|[A-Za-z]?[a-z]{2,})(?![\w/=]|[\-.]\w)")
TAG = re.compile(r"<[^>]*>")
LABEL = re.compile(r'(?:aria-label|data-light|data-dark|data-copied)="([^"{]*)"')


@dataclass(frozen=True)
class Phrase:
    """An English phrase and where it stands."""

    text: str
    section: str
    file: str
    line: int


class _Hole:
    """A place for a value."""

    def __init__(self, node: ast.expr | None, *, plural: bool = False, number: bool = False) -> None:
        self.node, self.plural, self.number = node, plural, number

    @property
    def mark(self) -> str:
        return "\x01" if self.plural else "\x02" if self.number else "\x00"


Part = str | _Hole


def phrases() -> dict[str, Phrase]:
    """Every phrase, by its text, in the order of the source."""
    found: dict[str, Phrase] = {}
    for section, patterns in SECTIONS.items():
        for pattern in patterns:
            for path in sorted(ROOT.glob(pattern)):
                texts = _data_texts(path) if path.suffix == ".json" else _source_texts(path)
                for text, line in texts:
                    name = str(path.relative_to(ROOT))
                    found.setdefault(text, Phrase(text=text, section=section, file=name, line=line))
    for pattern in ERROR_ROOMS:
        for path in sorted(ROOT.glob(pattern)):
            name = str(path.relative_to(ROOT))
            if name in UNHEARD:
                continue
            tree = _errors(ast.parse(path.read_text(encoding="utf-8")), name)
            for text, line in _tree_texts(tree, markup=False):
                found.setdefault(text, Phrase(text=text, section="errors", file=name, line=line))
    return found


def _source_texts(path: Path) -> Iterator[tuple[str, int]]:
    tree: ast.AST = ast.parse(path.read_text(encoding="utf-8"))
    if str(path.relative_to(ROOT)) in ERRORS:
        tree = _errors(tree, str(path.relative_to(ROOT)))
    yield from _tree_texts(tree, markup=path.name == "html.py")


def _tree_texts(tree: ast.AST, *, markup: bool) -> Iterator[tuple[str, int]]:
    for parts, line, inner in _texts(tree, inner=False):
        for text in _split(parts, markup=markup):
            if PROSE.search(text) and (inner or " " in text or markup):
                yield text, line


def _errors(tree: ast.AST, file: str) -> ast.Module:
    """Nothing but the errors of a file: what is raised, and the functions that make its words."""
    functions = {node.name: node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}
    found: list[ast.expr | ast.FunctionDef] = [
        node.exc for node in ast.walk(tree) if isinstance(node, ast.Raise) and node.exc
    ]
    found += [
        node for node in ast.walk(tree) if isinstance(node, ast.Call) and _called(node).endswith("Error")
    ]
    found += [functions[name] for where, name in sorted(HELPERS) if where == file and name in functions]
    found += _named_in(found, tree)
    for node in found:  # grows while it is read
        for call in ast.walk(node):
            makes = functions.get(_called(call)) if isinstance(call, ast.Call) else None
            if makes is not None and makes not in found and _gives_text(makes):
                found.append(makes)
    return ast.Module(body=[*map(_statement, found)], type_ignores=[])


def _named_in(raised: list[ast.expr | ast.FunctionDef], tree: ast.AST) -> list[ast.expr | ast.FunctionDef]:
    """Texts that errors take from a variable or constant, and what the checks of values call their values."""
    exprs = [node for node in raised if isinstance(node, ast.expr)]
    names = {name.id for node in exprs for name in ast.walk(node) if isinstance(name, ast.Name)}
    texts = (ast.Constant, ast.JoinedStr, ast.IfExp, ast.BinOp)
    found: list[ast.expr | ast.FunctionDef] = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign) and isinstance(node.value, texts):
            found += [node.value for one in node.targets if isinstance(one, ast.Name) and one.id in names]
        elif isinstance(node, ast.Call) and _called(node) in CHECKS:
            found += [one for one in node.args[:2] if isinstance(one, (ast.Constant, ast.JoinedStr))]
    return found


def _gives_text(function: ast.FunctionDef) -> bool:
    return function.returns is not None and "str" in ast.unparse(function.returns)


def _statement(node: ast.expr | ast.FunctionDef) -> ast.stmt:
    """Something to walk; in a tuple, since a text by itself would be taken for a docstring."""
    return node if isinstance(node, ast.FunctionDef) else ast.Expr(value=ast.Tuple(elts=[node]))


def _texts(node: ast.AST, *, inner: bool) -> Iterator[tuple[list[Part], int, bool]]:
    """Texts below a node: their parts, line, and whether they stand in the hole of another."""
    if isinstance(node, ast.keyword) and node.arg in NOT_TEXT:
        return
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
        return
    if isinstance(node, ast.FunctionDef) and node.name in NOT_SHOWN:
        return
    if isinstance(node, (ast.Raise, ast.Compare, ast.arg, ast.Import, ast.ImportFrom)):
        return
    if isinstance(node, ast.Subscript):
        yield from _texts(node.value, inner=inner)
        return
    if isinstance(node, ast.Call) and _called(node) in NOT_CALLS:
        if _called(node) == "join":
            for argument in node.args:
                yield from _texts(argument, inner=inner)
        return
    if _is_text(node):
        parts = _parts(node)
        yield parts, getattr(node, "lineno", 0), inner
        for part in parts:
            if isinstance(part, _Hole) and part.node is not None and not part.plural:
                yield from _texts(part.node, inner=True)
        return
    deeper = inner or isinstance(node, ast.IfExp)
    for child in ast.iter_child_nodes(node):
        yield from _texts(child, inner=deeper)


def _called(node: ast.Call) -> str:
    return node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")


def _is_text(node: ast.AST) -> bool:
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        return any(isinstance(part, str) for part in _parts(node))
    return isinstance(node, ast.JoinedStr) or (isinstance(node, ast.Constant) and isinstance(node.value, str))


def _parts(node: ast.expr | ast.AST) -> list[Part]:
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return _named(node.value)
    if isinstance(node, ast.JoinedStr):
        parts: list[Part] = []
        for value in node.values:
            parts += _parts(value)
        return parts
    if isinstance(node, ast.FormattedValue):
        if isinstance(node.value, ast.JoinedStr):
            return _parts(node.value)
        spec = ast.unparse(node.format_spec).strip("f'\"") if node.format_spec else ""
        return [_hole(node.value, number=bool(NUMBER.search(spec)))]
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        return _parts(node.left) + _parts(node.right)
    return [_hole(node)]  # type: ignore[arg-type]


def _named(text: str) -> list[Part]:
    """A text whose holes are names: `{ep} experts`."""
    parts: list[Part] = []
    pieces = PLACE.split(text)
    for number, piece in enumerate(pieces):
        parts += [_Hole(None)] * (number > 0) + [piece]
    return parts


def _hole(node: ast.expr, *, number: bool = False) -> _Hole:
    """A hole; one that holds an `s` or nothing is a plural ending."""
    constants = [n.value for n in ast.walk(node) if isinstance(n, ast.Constant)]
    plural = isinstance(node, (ast.IfExp, ast.BinOp)) and "s" in constants
    return _Hole(node, plural=plural, number=number)


def _split(parts: list[Part], *, markup: bool) -> Iterator[str]:
    """The lines (in a page, the words between tags) of a text; holes count from 0, `#` marks a number."""
    marked = "".join(part if isinstance(part, str) else part.mark for part in parts)
    marked = marked.replace("{{", "{").replace("}}", "}")
    pieces = marked.split("\n")
    if markup:
        pieces = [piece for text in pieces for piece in (*TAG.split(text), *LABEL.findall(text))]
    for piece in pieces:
        yield _numbered(re.sub("[\x00\x02]{2,}", "\x00", piece).strip())


def _numbered(text: str) -> str:
    count = 0
    out = []
    for letter in text:
        hole = {"\x01": "{s}", "\x00": f"{{{count}}}", "\x02": f"{{{count}#}}"}.get(letter)
        out.append(hole or letter)
        count += letter in "\x00\x02"
    return "".join(out)


def _data_texts(path: Path) -> Iterator[tuple[str, int]]:
    """Texts of a data file."""

    def walk(value: object, name: str) -> Iterator[str]:
        if name in NOT_TEXT:
            return
        if isinstance(value, dict):
            for key, inner in value.items():
                yield from walk(inner, key)
        elif isinstance(value, list):
            for inner in value:
                yield from walk(inner, name)
        elif isinstance(value, str) and " " in value and PROSE.search(value):
            yield value

    for text in walk(json.loads(path.read_text(encoding="utf-8")), ""):
        yield text, 0


def catalog(language: str = "zh") -> dict[str, dict[str, str]]:
    """The catalog, section by section."""
    path = ROOT / "lang" / "data" / f"{language}.json"
    found: dict[str, dict[str, str]] = json.loads(path.read_text(encoding="utf-8"))["phrases"]
    return found


def missing(language: str = "zh") -> list[Phrase]:
    """Phrases of the source that the catalog lacks."""
    known = {text for section in catalog(language).values() for text in section}
    return [phrase for text, phrase in phrases().items() if text not in known]


def stale(language: str = "zh") -> list[str]:
    """Phrases of the catalog that the source lost; those under `words` are parts that no file spells out."""
    found = phrases()
    sections = catalog(language).items()
    return [text for name, section in sections if name != "words" for text in section if text not in found]


def main() -> int:
    if "--stale" in sys.argv:
        lost = stale()
        print("\n".join(lost))
        return int(bool(lost))
    listed = list(phrases().values()) if "--all" in sys.argv else missing()
    for phrase in listed:
        print(f"{phrase.section}\t{phrase.file}:{phrase.line}\t{phrase.text}")
    return int(bool(listed) and "--all" not in sys.argv)


if __name__ == "__main__":
    sys.exit(main())
