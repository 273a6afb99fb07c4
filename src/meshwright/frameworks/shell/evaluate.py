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

from meshwright.frameworks.shell import assignment, builtins, control, redirections
from meshwright.frameworks.shell.conditions import Test
from meshwright.frameworks.shell.expand import Expander
from meshwright.frameworks.shell.files import Files
from meshwright.frameworks.shell.problems import Problem
from meshwright.frameworks.shell.script import Script, TooLong, parse, text_of_file
from meshwright.frameworks.shell.signals import Break, Continue, Exit, Return, Signal
from meshwright.frameworks.shell.state import Budget, OutOfBudget, State, Variable, merged
from meshwright.frameworks.shell.text import NOWHERE, Mark, Text, Unknowns

if TYPE_CHECKING:
    from tree_sitter import Node

Status = int | None
MAX_LAUNCHES = 2000
MAX_NESTING = 16
"""Scripts and substitutions inside each other."""


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
    frames: list[dict[str, Variable | None]] = field(default_factory=list)
    """For each function that runs, what its local variables hide."""
    loops: list[str] = field(default_factory=list)
    output: list[Text] = field(default_factory=list)
    stdin: Text | None = None
    why: set[str] = field(default_factory=set)
    """Inputs that left the last condition open."""
    depth: int = 0
    nesting: int = 0
    directives: dict[str, Text] = field(default_factory=dict)
    unsure: int = 0
    """How many unknown conditions stand around the current statement."""

    # entry points

    def run_file(self, path: str, text: Text) -> None:
        """Evaluate a whole script; limits end it early and are noted."""
        self.state.script = path
        try:
            self.run_text(text)
        except Signal:
            return
        except OutOfBudget:
            self.problems.append(Problem("the script does more than a launch script can; reading stopped"))
        except RecursionError:
            self.problems.append(Problem("the script is nested too deeply; reading stopped"))

    def run_text(self, text: Text) -> Status:
        """Evaluate script text in the current state; scripts inside scripts end at a few levels."""
        self.budget.spend(1, len(text))
        if self.nesting >= MAX_NESTING:
            self.problems.append(Problem("scripts call each other too deeply", file=text.mark.file))
            return None
        self.nesting += 1
        try:
            script = parse(text)
            return self.statements(script, script.root.children)
        except TooLong as reason:
            self.problems.append(Problem(f"a script could not be read: {reason}", file=text.mark.file))
            return None
        finally:
            self.nesting -= 1

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
            value = self.expander().number(
                script.between(node.children[0].end_byte, node.children[-1].start_byte)
            )
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

    def define(self, script: Script, node: Node) -> Status:
        name, body = node.child_by_field_name("name"), node.child_by_field_name("body")
        if name is not None and body is not None:
            self.functions[script.raw(name).plain] = (script, body)
        return 0

    # conditions and branches

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

    # commands

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

        def work() -> None:
            with suppress(Signal):
                self.run_text(raw)

        try:
            text = self.captured(work)
        finally:
            self.state = saved
        text = text.slice(0, len(text.plain.rstrip("\n")))
        return text if text.spans else Text((("", raw.mark_at(0)),))

    def command(self, script: Script, node: Node) -> Status:
        """Expand a simple command and hand it on."""
        children = assignment.lines_before(self, script, node)
        expander = self.expander()
        prefix: dict[str, Text] = {}
        words: list[Text] = []
        for child in children:
            if child.type == "variable_assignment":
                target, value = child.child_by_field_name("name"), child.child_by_field_name("value")
                if target is not None:
                    prefix[script.raw(target).plain] = (
                        expander.one(script.raw(value)) if value is not None else Text()
                    )
            elif child.type == "herestring_redirect":
                here = expander.one(script.raw(child.named_children[0]))
                self.stdin = here + Text.of("\n", script.mark(child))
            elif child.is_named and child.type not in ("file_redirect", "heredoc_redirect", "comment"):
                words.extend(expander.words(script.raw(child)))
        if not words:
            for name, text in prefix.items():
                self.state.set(name, text)
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


Handler = Callable[[Shell, Script, "Node"], Status]
HANDLERS: dict[str, Handler] = {
    "program": Shell.group,
    "compound_statement": Shell.group,
    "do_group": Shell.group,
    "subshell": Shell.subshell,
    "variable_assignment": assignment.assignment,
    "variable_assignments": assignment.assignments,
    "declaration_command": assignment.declaration,
    "unset_command": assignment.unset,
    "function_definition": Shell.define,
    "test_command": control.test,
    "if_statement": control.if_,
    "case_statement": control.case,
    "list": control.list_,
    "negated_command": control.negated,
    "for_statement": control.for_,
    "while_statement": control.while_,
    "c_style_for_statement": control.c_for,
    "pipeline": control.pipeline,
    "redirected_statement": redirections.redirected,
    "command": Shell.command,
}

__all__ = ["Launch", "Problem", "Shell", "text_of_file"]
