"""Redirections of the evaluated shell: here-documents, here-strings, files it writes and reads."""

from __future__ import annotations

import os.path
from functools import partial
from typing import TYPE_CHECKING

from meshwright.frameworks.shell.script import Script, text_of_file
from meshwright.frameworks.shell.text import Text

if TYPE_CHECKING:
    from tree_sitter import Node

    from meshwright.frameworks.shell.evaluate import Shell, Status


def read_file(shell: Shell, path: str) -> Text | None:
    found = shell.files.read(path, shell.state.cwd)
    if found is None:
        return None
    return found[1] if isinstance(found[1], Text) else text_of_file(found[1], found[0])


def redirected(shell: Shell, script: Script, node: Node) -> Status:
    """A statement with redirections: here-documents feed it, `>` keeps its output as a virtual file."""
    body = node.child_by_field_name("body")
    saved = shell.stdin
    target: str | None = None
    append = False
    pipelines: list[Node] = []
    for child in node.children:  # here-strings behind a loop are no `redirect` to the grammar
        if child.type == "heredoc_redirect":
            shell.stdin, inner, rest = heredoc(shell, script, child)
            target = inner or target
            pipelines += rest
        elif child.type == "herestring_redirect":
            here = shell.expander().one(script.raw(child.named_children[0]))
            shell.stdin = here + Text.of("\n", here.mark)
        elif child.type == "file_redirect":
            path, append = _file_redirect(shell, script, child, append)
            target = path or target
    try:
        if target is None and not pipelines:
            return shell.run(script, body) if body is not None else 0
        status: Status = 0

        def work() -> None:
            nonlocal status
            status = shell.run(script, body) if body is not None else 0

        output = shell.captured(work)
        for part in pipelines:
            shell.stdin = output
            output = shell.captured(partial(shell.run, script, part))
        if target is not None and target != "/dev/null":
            _write(shell, target, output, append)
        elif target is None:
            shell.output.append(output)
        return status
    finally:
        shell.stdin = saved


def _file_redirect(shell: Shell, script: Script, node: Node, append: bool) -> tuple[str | None, bool]:
    """(file that standard output goes to, whether it is appended to)."""
    operator = next((child.type for child in node.children if not child.is_named), "")
    descriptor = next((script.raw(c).plain for c in node.children if c.type == "file_descriptor"), "1")
    destination = node.child_by_field_name("destination")
    if destination is None:
        return None, append
    word = shell.expander().one(script.raw(destination))
    if operator == "<" and destination.type != "process_substitution" and word.is_known:
        shell.stdin = read_file(shell, word.plain)
    elif operator == "<" and destination.type == "process_substitution":
        shell.stdin = shell.captured(lambda: shell.statements(script, destination.named_children))
    if operator in (">", ">>", "&>", "&>>", ">|") and descriptor == "1" and word.is_known:
        return word.plain, operator in (">>", "&>>")
    return None, append


def _write(shell: Shell, path: str, text: Text, append: bool) -> None:
    place = os.path.normpath(os.path.join(shell.state.cwd, path))
    if append and place in shell.files.virtual:
        text = shell.files.virtual[place] + text
    shell.budget.spend(1, len(text))
    shell.files.write(place, text)


def heredoc(shell: Shell, script: Script, node: Node) -> tuple[Text, str | None, list[Node]]:
    """(text, file that the same line redirects to, commands that the same line pipes to)."""
    start = next((child for child in node.children if child.type == "heredoc_start"), None)
    body = next((child for child in node.children if child.type == "heredoc_body"), None)
    target: str | None = None
    pipes: list[Node] = []
    for child in node.named_children:
        if child.type == "file_redirect":
            target, _ = _file_redirect(shell, script, child, False)
        elif child.type == "pipeline":
            pipes += [part for part in child.named_children if part.type != "comment"]
        elif child.type == "command":
            pipes.append(child)
    if body is None or start is None:
        return Text(), target, pipes
    raw = script.raw(body)
    if any(child.type == "<<-" for child in node.children):
        raw = Text(tuple((text.lstrip("\t"), mark) for text, mark in raw.spans))
    if any(char in script.raw(start).plain for char in "'\"\\"):
        return raw, target, pipes
    return shell.expander().quoted(raw), target, pipes
