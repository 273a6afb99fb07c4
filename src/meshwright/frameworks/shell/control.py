"""Control flow of the evaluated shell: if, case, &&, ||, loops, pipelines."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from meshwright.frameworks.shell import glob
from meshwright.frameworks.shell.script import Script
from meshwright.frameworks.shell.signals import Break, Continue, Exit, Return
from meshwright.frameworks.shell.text import Text

if TYPE_CHECKING:
    from tree_sitter import Node

    from meshwright.frameworks.shell.evaluate import Shell, Status

MAX_ROUNDS = 2000
"""Rounds of one loop."""
Clause = tuple[list["Node"], list["Node"]]
"""Condition and body of one branch of an if statement."""


def test(shell: Shell, script: Script, node: Node) -> Status:
    opening = node.children[0]
    inner = script.between(opening.end_byte, node.children[-1].start_byte)
    if opening.type == "((":
        value = shell.expander().number(inner)
        return None if value is None else int(value == 0)
    return shell.evaluate_test(inner, double=opening.type == "[[")


def if_(shell: Shell, script: Script, node: Node) -> Status:
    clauses = _clauses(node)
    return _if_clauses(shell, script, clauses)


def _if_clauses(shell: Shell, script: Script, clauses: list[Clause]) -> Status:
    for number, (condition, body) in enumerate(clauses):
        status = shell.statements(script, condition) if condition else 0
        if status == 0:
            return shell.statements(script, body)
        if status is None:
            rest = clauses[number + 1 :]
            return shell.branches(
                [partial(shell.statements, script, body), partial(_if_clauses, shell, script, rest)]
            )
    return 0


def case(shell: Shell, script: Script, node: Node) -> Status:
    value_node = node.child_by_field_name("value")
    expander = shell.expander()
    value = expander.one(script.raw(value_node)) if value_node is not None else Text()
    if value_node is not None and len(value) == 1 and not value.is_known:
        named = script.raw(value_node).plain.strip('"${}')
        if named.isidentifier() and shell.state.get(named) is None:
            value = Text()
    items = [child for child in node.named_children if child.type == "case_item"]
    if not value.is_known:
        shell.why = set(shell.unknowns.names(value))
        return shell.branches([*(partial(_case_body, shell, script, item) for item in items), lambda: 0])
    for item in items:
        patterns = item.children_by_field_name("value")
        if any(glob.matches(value.plain, expander.pattern(script.raw(pattern))) for pattern in patterns):
            return _case_body(shell, script, item)
    return 0


def _case_body(shell: Shell, script: Script, item: Node) -> Status:
    values = {node.id for node in item.children_by_field_name("value")}
    return shell.statements(script, [child for child in item.named_children if child.id not in values])


def list_(shell: Shell, script: Script, node: Node) -> Status:
    left, operator, right = node.children[0], node.children[1].type, node.children[-1]
    status = shell.run(script, left)
    if status is None:
        return shell.branches([lambda: shell.run(script, right), lambda: 0])
    if (status == 0) == (operator == "&&"):
        return shell.run(script, right)
    return status


def negated(shell: Shell, script: Script, node: Node) -> Status:
    status = shell.run(script, node.named_children[0]) if node.named_children else 0
    return None if status is None else int(status == 0)


def for_(shell: Shell, script: Script, node: Node) -> Status:
    variable, body = node.child_by_field_name("variable"), node.child_by_field_name("body")
    if variable is None or body is None:
        return 0
    name = script.raw(variable).plain
    values = node.children_by_field_name("value")
    expander = shell.expander()
    words = [word for value in values for word in expander.words(script.raw(value))]
    if not values and not any(child.type == "in" for child in node.children):
        words = list(shell.state.positional)
    for word in words[:MAX_ROUNDS]:
        shell.state.set(name, word)
        shell.loops.append(f"{name}={shell.unknowns.shown(word)[:80]}")
        try:
            shell.run(script, body)
        except Break:
            break
        except Continue:
            continue
        finally:
            shell.loops.pop()
    return 0


def while_(shell: Shell, script: Script, node: Node) -> Status:
    body = node.child_by_field_name("body")
    until = node.children[0].type == "until"
    if body is None:
        return 0
    condition = [child for child in node.named_children if child.id != body.id]
    started = len(shell.launches)
    for _ in range(MAX_ROUNDS):
        status = shell.statements(script, condition)
        if status is None or (status == 0) == until:
            break
        try:
            shell.run(script, body)
        except Break:
            break
        except Continue:
            continue
        if len(shell.launches) > started + 4 and _repeats(shell, started):
            break
    return 0


def _repeats(shell: Shell, started: int) -> bool:
    """Whether the loop starts the same command again and again."""
    last = [[str(word) for word in launch.words] for launch in shell.launches[-3:]]
    return len(shell.launches) - started > 2 and last[0] == last[1] == last[2]


def c_for(shell: Shell, script: Script, node: Node) -> Status:
    """`for ((a; b; c))`."""
    body = node.child_by_field_name("body")
    opening = next((child for child in node.children if child.type == "(("), None)
    closing = next((child for child in node.children if child.type == "))"), None)
    if body is None or opening is None or closing is None:
        return 0
    raw = script.between(opening.end_byte, closing.start_byte)
    first, _, rest = raw.partition(";")
    test, _, update = rest.partition(";")
    expander = shell.expander()
    expander.number(first)
    for _ in range(MAX_ROUNDS):
        if test.plain.strip() and not expander.number(test):
            break
        try:
            shell.run(script, body)
        except Break:
            break
        except Continue:
            pass
        expander = shell.expander()
        expander.number(update)
    return 0


def pipeline(shell: Shell, script: Script, node: Node) -> Status:
    """Each command feeds the next; the state of its parts is not kept."""
    parts = [child for child in node.named_children if child.type != "comment"]
    saved_input, saved_state = shell.stdin, shell.state
    status: Status = 0
    for number, part in enumerate(parts):
        shell.state = saved_state.copy()
        try:
            if number < len(parts) - 1:
                shell.stdin = shell.captured(partial(shell.run, script, part))
            else:
                status = shell.run(script, part)
        except (Exit, Return):
            status = None
        finally:
            shell.state = saved_state
    shell.stdin = saved_input
    return status


def _clauses(node: Node) -> list[Clause]:
    """(condition, body) of an if statement and its elif and else clauses; no condition for else."""
    clauses: list[Clause] = []
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
