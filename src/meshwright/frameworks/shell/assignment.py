"""Assignments and declarations of the evaluated shell: scalars, arrays, export, local, unset."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

from meshwright.frameworks.shell.parameter import subscript
from meshwright.frameworks.shell.script import Script
from meshwright.frameworks.shell.state import Array, State
from meshwright.frameworks.shell.text import Text

if TYPE_CHECKING:
    from tree_sitter import Node

    from meshwright.frameworks.shell.evaluate import Shell, Status


def assignment(shell: Shell, script: Script, node: Node) -> Status:
    assign(shell, script, node, shell.state)
    return 0


def assignments(shell: Shell, script: Script, node: Node) -> Status:
    for child in node.named_children:
        if child.type == "variable_assignment":
            assign(shell, script, child, shell.state)
    return 0


def lines_before(shell: Shell, script: Script, node: Node) -> list[Node]:
    """Carry out assignments that stand on a line of their own before a command; returns the command's nodes.

    The grammar takes `a=1 b=2`, a new line and a command for one command with two variables of its own.
    """
    children = list(node.children)
    first = 0
    for number, (left, right) in enumerate(pairwise(children), 1):
        if left.type != "variable_assignment":
            break
        if "\n" in script.between(left.end_byte, right.start_byte).plain.replace("\\\n", ""):
            first = number
    for child in children[:first]:
        assign(shell, script, child, shell.state)
    return children[first:]


def assign(shell: Shell, script: Script, node: Node, state: State, *, associative: bool = False) -> str:
    """Carry out `name=value`, `name+=value`, `name[i]=value`, `name=(...)`; returns the name."""
    target, value = node.child_by_field_name("name"), node.child_by_field_name("value")
    if target is None:
        return ""
    append = any(child.type == "+=" for child in node.children)
    name_text = script.raw(target).plain
    name, _, index = name_text.partition("[")
    expander = shell.expander()
    if value is not None and value.type == "array":
        array = Array(associative=associative)
        old = state.get(name)
        if isinstance(old, Array) and old.associative:
            array.associative = True
        if append:
            array = old.copy() if isinstance(old, Array) else Array({"0": old} if old else {})
        _fill(shell, script, value, array)
        state.set(name, array)
        return name
    text = expander.one(script.raw(value)) if value is not None else Text.of("", script.mark(node))
    if not text.spans:
        text = Text((("", script.mark(node)),))
    if index:
        key = subscript(expander, name, script.raw(target).slice(len(name) + 1, len(name_text) - 1))
        old_item = state.get(name)
        before = old_item.items.get(key, Text()) if isinstance(old_item, Array) else Text()
        state.set_item(name, key, before + text if append else text)
        return name
    if len(text) == 1 and not text.is_known and text.mark.kind == "argument":
        shell.unknowns.argument_names.setdefault(f"${text.mark.name}", name)
    old = state.get(name)
    if name in state.integers:
        state.set(name, _whole(shell, old if append and isinstance(old, Text) else None, text))
    elif append and isinstance(old, Array):
        state.set_item(name, "0", old.items.get("0", Text()) + text)
    else:
        state.set(name, old + text if append and isinstance(old, Text) else text)
    return name


def _whole(shell: Shell, before: Text | None, text: Text) -> Text:
    """The value of a variable declared with -i."""
    if before is not None and text.plain:
        text = before + Text.of("+(", text.mark) + text + Text.of(")", text.mark)
    return shell.expander().arithmetic(text) if text.plain else Text.of("0", text.mark)


def _fill(shell: Shell, script: Script, node: Node, array: Array) -> None:
    """Items of `( ... )`, with `[key]=value` items for associative arrays."""
    expander = shell.expander()
    for child in node.named_children:
        if child.type == "comment":
            continue
        raw = script.raw(child)
        if raw.plain.startswith("[") and "]=" in raw.plain:
            cut = raw.plain.index("]=")
            key = expander.one(raw.slice(1, cut)).plain
            array.items[key] = expander.one(raw.slice(cut + 2, len(raw)))
            continue
        words = expander.words(raw)
        if words:
            array.extend(words)
        shell.budget.spend(1 + len(words) + len(array.items) // 64)


def declaration(shell: Shell, script: Script, node: Node) -> Status:
    """export, declare, local, readonly, typeset."""
    keyword = node.children[0].type
    flags = "".join(script.raw(c).plain for c in node.named_children if script.raw(c).plain.startswith("-"))
    for child in node.named_children:
        raw = script.raw(child)
        if keyword in ("local", "declare", "typeset") and "g" not in flags:
            _hide(shell, raw.plain.partition("=")[0].rstrip("+").partition("[")[0])
        if "i" in flags and not raw.plain.startswith("-"):
            shell.state.integers.add(raw.plain.partition("=")[0].rstrip("+"))
        if child.type == "variable_assignment":
            name = assign(shell, script, child, shell.state, associative="A" in flags)
        elif raw.plain.startswith("-"):
            continue
        else:
            for word in shell.expander().words(raw):
                _declare(shell, word, keyword, flags)
            continue
        if keyword == "export" or "x" in flags:
            shell.state.exported.add(name)
    return 0


def _hide(shell: Shell, name: str) -> None:
    """Remember what a local variable hides, to be put back when the function ends."""
    if shell.frames and name and not name.startswith("-"):
        value = shell.state.variables.get(name)
        shell.frames[-1].setdefault(name, value.copy() if isinstance(value, Array) else value)


def _declare(shell: Shell, word: Text, keyword: str, flags: str) -> None:
    name, equals, value = word.partition("=")
    if equals:
        shell.state.set(name.plain, value)
    elif "A" in flags or "a" in flags:
        shell.state.variables.setdefault(name.plain, Array(associative="A" in flags))
    if keyword == "export" or "x" in flags:
        shell.state.exported.add(name.plain)


def unset(shell: Shell, script: Script, node: Node) -> Status:
    said = script.raw(node).plain.partition(" ")[2]
    for word in said.split():
        name, _, index = word.strip("'\"").partition("[")
        array = shell.state.get(name)
        if index and isinstance(array, Array):
            array.items.pop(shell.expander().one(Text.of(index.rstrip("]"))).plain, None)
        elif not name.startswith("-"):
            shell.state.variables.pop(name, None)
            shell.state.exported.discard(name)
    return 0
