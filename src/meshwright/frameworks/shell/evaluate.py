"""Evaluation of shell scripts: which commands would start, with which words and environment.

Nothing is executed. Statements change a `State`; commands that are not understood are recorded as
`Launch`es and their output is unknown. Where a condition is unknown both branches are followed and
what differs between them becomes unknown.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from meshwright.frameworks.shell import builtins, glob
from meshwright.frameworks.shell.conditions import Test
from meshwright.frameworks.shell.expand import Expander
from meshwright.frameworks.shell.files import Files
from meshwright.frameworks.shell.parameter import subscript
from meshwright.frameworks.shell.script import Script, TooLong, parse, text_of_file
from meshwright.frameworks.shell.state import Array, Budget, OutOfBudget, State, merged
from meshwright.frameworks.shell.text import NOWHERE, Mark, Text, Unknowns

if TYPE_CHECKING:
    from tree_sitter import Node

Status = int | None
MAX_LAUNCHES = 2000
MAX_ROUNDS = 2000
"""Rounds of one loop."""
ARITHMETIC_PARTS = ("initializer", "condition", "update")


@dataclass(frozen=True)
class Launch:
    """A command that the script would start."""

    words: tuple[Text, ...]
    environment: dict[str, Text]
    wrappers: tuple[tuple[Text, ...], ...] = ()
    """Commands around a nested shell, outermost first (`srun` around `bash -c`)."""
    label: str = ""
    """The loop values it ran with."""
    maybe: bool = False
    """It stands under a condition that is not known."""
    directives: dict[str, Text] = field(default_factory=dict)
    """Options of the #SBATCH lines of the script it stands in."""

    @property
    def mark(self) -> Mark:
        return self.words[0].mark if self.words else NOWHERE


@dataclass(frozen=True)
class Problem:
    """Something that kept the evaluation from being complete."""

    text: str
    line: int | None = None
    file: str = ""


class Exit(Exception):  # noqa: N818 - control flow of the evaluated script
    pass


class Return(Exception):  # noqa: N818
    pass


class Break(Exception):  # noqa: N818
    pass


class Continue(Exception):  # noqa: N818
    pass


@dataclass
class Shell:
    """One evaluation. `state` changes as statements run."""

    files: Files
    state: State
    unknowns: Unknowns = field(default_factory=Unknowns)
    budget: Budget = field(default_factory=Budget)
    launches: list[Launch] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)
    functions: dict[str, tuple[Script, Node]] = field(default_factory=dict)
    wrappers: list[tuple[Text, ...]] = field(default_factory=list)
    loops: list[str] = field(default_factory=list)
    output: list[Text] = field(default_factory=list)
    stdin: Text | None = None
    why: set[str] = field(default_factory=set)
    """Inputs that left the last condition open."""
    depth: int = 0
    directives: dict[str, Text] = field(default_factory=dict)
    unsure: int = 0
    """How many unknown conditions stand around the current statement."""

    # entry points

    def run_file(self, path: str, text: Text) -> None:
        """Evaluate a whole script; limits end it early and are noted."""
        self.state.script = path
        try:
            self.run_text(text)
        except (Exit, Return, Break, Continue):
            pass
        except OutOfBudget:
            self.problems.append(Problem("the script does more than a launch script can; reading stopped"))
        except RecursionError:
            self.problems.append(Problem("the script is nested too deeply; reading stopped"))

    def run_text(self, text: Text) -> Status:
        """Evaluate script text in the current state."""
        self.depth += 1
        try:
            if self.depth > 24:
                raise RecursionError("scripts call each other too deeply")
            self.budget.spend(1, len(text))
            try:
                script = parse(text)
            except TooLong as reason:
                self.problems.append(Problem(f"a script could not be read: {reason}", file=text.mark.file))
                return None
            return self.statements(script, script.root.children)
        finally:
            self.depth -= 1

    def expander(self) -> Expander:
        return Expander(self.state, self.unknowns, self.budget, self.substitute)

    # statements

    def statements(self, script: Script, nodes: Iterable[Node]) -> Status:
        status: Status = 0
        for node in nodes:
            if node.is_named and node.type != "comment":
                status = self.run(script, node)
        return status

    def run(self, script: Script, node: Node) -> Status:
        """One statement; its exit status, None when that is unknown."""
        self.budget.spend()
        self.depth += 1
        try:
            if self.depth > 200:
                raise RecursionError("statements nested too deeply")
            handler = HANDLERS.get(node.type)
            if handler is None:
                return 0 if node.type in ("comment", "heredoc_body") else self._odd(script, node)
            return handler(self, script, node)
        finally:
            self.depth -= 1

    def _odd(self, script: Script, node: Node) -> Status:
        if node.type == "ERROR":
            mark = script.mark(node)
            self.problems.append(Problem("shell syntax that could not be read", mark.line, mark.file))
        return self.statements(script, [child for child in node.children if child.type in HANDLERS])

    def group(self, script: Script, node: Node) -> Status:
        if node.children and node.children[0].type == "((":
            value = self.expander().number(script.between(node.children[0].end_byte, node.children[-1].start_byte))
            return None if value is None else int(value == 0)
        return self.statements(script, node.children)

    def subshell(self, script: Script, node: Node) -> Status:
        saved = self.state
        self.state = saved.copy()
        try:
            return self.statements(script, node.children)
        except (Exit, Return):
            return None
        finally:
            self.state = saved

    def assignment(self, script: Script, node: Node) -> Status:
        self.assign(script, node, self.state)
        return 0

    def assignments(self, script: Script, node: Node) -> Status:
        for child in node.named_children:
            if child.type == "variable_assignment":
                self.assign(script, child, self.state)
        return 0

    def assign(self, script: Script, node: Node, state: State, *, associative: bool = False) -> str:
        """Carry out `name=value`, `name+=value`, `name[i]=value`, `name=(...)`; returns the name."""
        target, value = node.child_by_field_name("name"), node.child_by_field_name("value")
        if target is None:
            return ""
        append = any(child.type == "+=" for child in node.children)
        name_text = script.raw(target).plain
        name, _, index = name_text.partition("[")
        shell = self.expander()
        if value is not None and value.type == "array":
            array = Array(associative=associative)
            old = state.get(name)
            if isinstance(old, Array) and old.associative:
                array.associative = True
            if append:
                array = old.copy() if isinstance(old, Array) else Array({"0": old} if old else {})
            self._fill(script, value, array)
            state.set(name, array)
            return name
        text = shell.one(script.raw(value)) if value is not None else Text.of("", script.mark(node))
        if not text.spans:
            text = Text((("", script.mark(node)),))
        if index:
            key = subscript(shell, name, script.raw(target).slice(len(name) + 1, len(name_text) - 1))
            old_item = state.get(name)
            before = old_item.items.get(key, Text()) if isinstance(old_item, Array) else Text()
            state.set_item(name, key, before + text if append else text)
            return name
        old = state.get(name)
        if append and isinstance(old, Array):
            state.set_item(name, "0", old.items.get("0", Text()) + text)
        else:
            state.set(name, old + text if append and isinstance(old, Text) else text)
        return name

    def _fill(self, script: Script, node: Node, array: Array) -> None:
        """Items of `( ... )`, with `[key]=value` items for associative arrays."""
        shell = self.expander()
        for child in node.named_children:
            if child.type == "comment":
                continue
            raw = script.raw(child)
            if raw.plain.startswith("[") and "]=" in raw.plain:
                cut = raw.plain.index("]=")
                key = shell.one(raw.slice(1, cut)).plain
                array.items[key] = shell.one(raw.slice(cut + 2, len(raw)))
                continue
            for word in shell.words(raw):
                array.append(word)
            self.budget.spend(1 + len(array.items) // 64)

    def declaration(self, script: Script, node: Node) -> Status:
        """export, declare, local, readonly, typeset."""
        keyword = node.children[0].type
        flags = "".join(script.raw(c).plain for c in node.named_children if script.raw(c).plain.startswith("-"))
        for child in node.named_children:
            raw = script.raw(child)
            if child.type == "variable_assignment":
                name = self.assign(script, child, self.state, associative="A" in flags)
            elif raw.plain.startswith("-"):
                continue
            else:
                for word in self.expander().words(raw):
                    self._declare(word, keyword, flags)
                continue
            if keyword == "export" or "x" in flags:
                self.state.exported.add(name)
        return 0

    def _declare(self, word: Text, keyword: str, flags: str) -> None:
        name, equals, value = word.partition("=")
        if equals:
            self.state.set(name.plain, value)
        elif "A" in flags or "a" in flags:
            self.state.variables.setdefault(name.plain, Array(associative="A" in flags))
        if keyword == "export" or "x" in flags:
            self.state.exported.add(name.plain)

    def unset(self, script: Script, node: Node) -> Status:
        for child in node.named_children:
            name = script.raw(child).plain.strip("'\"")
            self.state.variables.pop(name, None)
            self.state.exported.discard(name)
        return 0

    def define(self, script: Script, node: Node) -> Status:
        name, body = node.child_by_field_name("name"), node.child_by_field_name("body")
        if name is not None and body is not None:
            self.functions[script.raw(name).plain] = (script, body)
        return 0

    # conditions and branches

    def test(self, script: Script, node: Node) -> Status:
        opening = node.children[0]
        inner = script.between(opening.end_byte, node.children[-1].start_byte)
        if opening.type == "((":
            value = self.expander().number(inner)
            return None if value is None else int(value == 0)
        return self.evaluate_test(inner, double=opening.type == "[[")

    def evaluate_test(self, inner: Text, *, double: bool) -> Status:
        test = Test(self.expander(), double, lambda path: self.files.exists(path, self.state.cwd))
        truth = test.evaluate(inner)
        self.why = set(test.names)
        return None if truth is None else int(not truth)

    def branches(self, choices: list[Callable[[], Status]]) -> Status:
        """Follow every choice on its own copy of the state, then keep what they agree on."""
        names = frozenset(self.why)
        before, ends = self.state, []
        self.unsure += 1
        for choice in choices:
            self.state = before.copy()
            self.budget.spend(8 + len(before.variables))
            try:
                with suppress(Break, Continue):
                    choice()
                ends.append(self.state)
            except (Exit, Return):
                continue
        self.unsure -= 1
        self.state = before
        if not ends:
            raise Exit
        both = ends[0]
        for other in ends[1:]:
            both = merged(both, other, names, self.unknowns)
        before.replace_by(both)
        return None

    def if_(self, script: Script, node: Node) -> Status:
        clauses = _clauses(node)
        return self._if_clauses(script, clauses)

    def _if_clauses(self, script: Script, clauses: list[tuple[list[Node], list[Node]]]) -> Status:
        for number, (condition, body) in enumerate(clauses):
            status = self.statements(script, condition) if condition else 0
            if status == 0:
                return self.statements(script, body)
            if status is None:
                rest = clauses[number + 1 :]
                return self.branches(
                    [lambda: self.statements(script, body), lambda: self._if_clauses(script, rest)]
                )
        return 0

    def case(self, script: Script, node: Node) -> Status:
        value_node = node.child_by_field_name("value")
        shell = self.expander()
        value = shell.one(script.raw(value_node)) if value_node is not None else Text()
        if value_node is not None and len(value) == 1 and not value.is_known:
            named = script.raw(value_node).plain.strip('"${}')
            if named.isidentifier() and self.state.get(named) is None:
                value = Text()
        items = [child for child in node.named_children if child.type == "case_item"]
        if not value.is_known:
            self.why = set(self.unknowns.names(value))
            return self.branches([*(lambda i=i: self._case_body(script, i) for i in items), lambda: 0])
        for item in items:
            patterns = item.children_by_field_name("value")
            if any(glob.matches(value.plain, shell.pattern(script.raw(pattern))) for pattern in patterns):
                return self._case_body(script, item)
        return 0

    def _case_body(self, script: Script, item: Node) -> Status:
        values = {node.id for node in item.children_by_field_name("value")}
        return self.statements(script, [child for child in item.named_children if child.id not in values])

    def list_(self, script: Script, node: Node) -> Status:
        left, operator, right = node.children[0], node.children[1].type, node.children[-1]
        status = self.run(script, left)
        if status is None:
            return self.branches([lambda: self.run(script, right), lambda: 0])
        if (status == 0) == (operator == "&&"):
            return self.run(script, right)
        return status

    def negated(self, script: Script, node: Node) -> Status:
        status = self.run(script, node.named_children[0]) if node.named_children else 0
        return None if status is None else int(status == 0)

    # loops

    def for_(self, script: Script, node: Node) -> Status:
        variable, body = node.child_by_field_name("variable"), node.child_by_field_name("body")
        if variable is None or body is None:
            return 0
        name = script.raw(variable).plain
        values = node.children_by_field_name("value")
        shell = self.expander()
        words = [word for value in values for word in shell.words(script.raw(value))]
        if not values and not any(child.type == "in" for child in node.children):
            words = list(self.state.positional)
        for word in words[:MAX_ROUNDS]:
            self.state.set(name, word)
            self.loops.append(f"{name}={self.unknowns.shown(word)[:80]}")
            try:
                self.run(script, body)
            except Break:
                break
            except Continue:
                continue
            finally:
                self.loops.pop()
        return 0

    def while_(self, script: Script, node: Node) -> Status:
        body = node.child_by_field_name("body")
        until = node.children[0].type == "until"
        if body is None:
            return 0
        condition = [child for child in node.named_children if child.id != body.id]
        started = len(self.launches)
        for _ in range(MAX_ROUNDS):
            status = self.statements(script, condition)
            if status is None or (status == 0) == until:
                break
            try:
                self.run(script, body)
            except Break:
                break
            except Continue:
                continue
            if len(self.launches) > started + 4 and self._repeats(started):
                break
        return 0

    def _repeats(self, started: int) -> bool:
        """Whether the loop starts the same command again and again."""
        last = [[str(word) for word in launch.words] for launch in self.launches[-3:]]
        return len(self.launches) - started > 2 and last[0] == last[1] == last[2]

    def c_for(self, script: Script, node: Node) -> Status:
        """`for ((a; b; c))`."""
        body = node.child_by_field_name("body")
        opening = next((child for child in node.children if child.type == "(("), None)
        closing = next((child for child in node.children if child.type == "))"), None)
        if body is None or opening is None or closing is None:
            return 0
        raw = script.between(opening.end_byte, closing.start_byte)
        first, _, rest = raw.partition(";")
        test, _, update = rest.partition(";")
        shell = self.expander()
        shell.number(first)
        for _ in range(MAX_ROUNDS):
            if test.plain.strip() and not shell.number(test):
                break
            try:
                self.run(script, body)
            except Break:
                break
            except Continue:
                pass
            shell = self.expander()
            shell.number(update)
        return 0

    # commands

    def pipeline(self, script: Script, node: Node) -> Status:
        """Each command feeds the next; the state of its parts is not kept."""
        parts = [child for child in node.named_children if child.type != "comment"]
        saved_input, saved_state = self.stdin, self.state
        status: Status = 0
        for number, part in enumerate(parts):
            self.state = saved_state.copy()
            try:
                if number < len(parts) - 1:
                    self.stdin = self.captured(lambda part=part: self.run(script, part))
                else:
                    status = self.run(script, part)
            except (Exit, Return):
                status = None
            finally:
                self.state = saved_state
        self.stdin = saved_input
        return status

    def captured(self, work: Callable[[], object]) -> Text:
        """What `work` writes to standard output."""
        saved = self.output
        self.output = []
        try:
            work()
            return Text.join(self.output)
        finally:
            self.output = saved

    def substitute(self, raw: Text) -> Text:
        """`$(raw)`: output of the command where it can be computed, unknown otherwise."""
        saved = self.state
        self.state = saved.copy()
        mark = raw.mark_at(0)
        text = Text()
        try:
            text = self.captured(lambda: self.run_text(raw))
        except (Exit, Return, Break, Continue):
            text = Text.join(self.output[:0])
        finally:
            self.state = saved
        end = len(text.plain.rstrip("\n"))
        text = text.slice(0, end)
        if not text.spans:
            return Text((("", mark),))
        return text

    def redirected(self, script: Script, node: Node) -> Status:
        """A command with `<`, `>`, here-documents and here-strings."""
        return builtins.redirected(self, script, node)

    def command(self, script: Script, node: Node) -> Status:
        """Expand a simple command and hand it on."""
        shell = self.expander()
        prefix: dict[str, Text] = {}
        words: list[Text] = []
        for child in node.children:
            if child.type == "variable_assignment":
                target, value = child.child_by_field_name("name"), child.child_by_field_name("value")
                if target is not None:
                    prefix[script.raw(target).plain] = shell.one(script.raw(value)) if value else Text()
            elif child.type == "herestring_redirect":
                self.stdin = shell.one(script.raw(child.named_children[0])) + Text.of("\n", script.mark(child))
            elif child.type in ("file_redirect", "heredoc_redirect", "comment"):
                continue
            elif child.is_named:
                words.extend(shell.words(script.raw(child)))
        if not words:
            for name, value in prefix.items():
                self.state.set(name, value)
            return 0
        return builtins.call(self, words, prefix)

    def launch(self, words: list[Text], prefix: dict[str, Text]) -> Status:
        """Record a command that would start."""
        if len(self.launches) >= MAX_LAUNCHES:
            raise OutOfBudget
        self.budget.spend(1, sum(len(word) for word in words))
        self.launches.append(
            Launch(
                tuple(words),
                {**self.state.environment(), **prefix},
                tuple(self.wrappers),
                " ".join(self.loops),
                self.unsure > 0,
                self.directives,
            )
        )
        return None


def _clauses(node: Node) -> list[tuple[list[Node], list[Node]]]:
    """(condition, body) of an if statement and its elif and else clauses; no condition for else."""
    clauses: list[tuple[list[Node], list[Node]]] = []
    condition: list[Node] = []
    body: list[Node] = []
    seen_then = False
    for child in node.children:
        if child.type == "then":
            seen_then = True
        elif child.type in ("elif_clause", "else_clause"):
            clauses.extend(_clauses(child))
        elif child.is_named:
            (body if seen_then or node.type == "else_clause" else condition).append(child)
    return [(condition, body), *clauses]


Handler = Callable[[Shell, Script, "Node"], Status]
HANDLERS: dict[str, Handler] = {
    "program": Shell.group,
    "compound_statement": Shell.group,
    "do_group": Shell.group,
    "subshell": Shell.subshell,
    "variable_assignment": Shell.assignment,
    "variable_assignments": Shell.assignments,
    "declaration_command": Shell.declaration,
    "unset_command": Shell.unset,
    "function_definition": Shell.define,
    "test_command": Shell.test,
    "if_statement": Shell.if_,
    "case_statement": Shell.case,
    "list": Shell.list_,
    "negated_command": Shell.negated,
    "for_statement": Shell.for_,
    "while_statement": Shell.while_,
    "c_style_for_statement": Shell.c_for,
    "pipeline": Shell.pipeline,
    "redirected_statement": Shell.redirected,
    "command": Shell.command,
}

__all__ = ["Launch", "Problem", "Shell", "text_of_file"]
