"""A shell script as a syntax tree, with the way back from every node to the marked text."""

from __future__ import annotations

import time
from array import array
from dataclasses import dataclass
from typing import TYPE_CHECKING

from meshwright.frameworks.shell.text import Mark, Text, cleaned

if TYPE_CHECKING:
    from tree_sitter import Node

MAX_SOURCE = 1 << 20
"""Longest script that is read [bytes]; launch scripts have a few thousand."""
MAX_PARSE_SECONDS = 2.0
CHUNK = 4096


class TooLong(Exception):  # noqa: N818 - the caller turns it into an answer
    """The text is too long or too tangled for a launch script."""


@dataclass(frozen=True)
class Script:
    """Source text, its bytes and its syntax tree."""

    text: Text
    data: bytes
    root: Node
    index: array[int] | None
    """Character index of each byte offset; None where both are the same (ASCII)."""

    def raw(self, node: Node) -> Text:
        """The marked text of a node."""
        return self.between(node.start_byte, node.end_byte)

    def between(self, start: int, stop: int) -> Text:
        if self.index is not None:
            start, stop = self.index[start], self.index[stop]
        return self.text.slice(start, stop)

    def mark(self, node: Node) -> Mark:
        start = node.start_byte if self.index is None else self.index[node.start_byte]
        return self.text.mark_at(start)


def text_of_file(content: str, file: str) -> Text:
    """File content as marked text, one span a line."""
    lines = cleaned(content).replace("\r\n", "\n").split("\n")
    spans = [(line + "\n", Mark(file, number)) for number, line in enumerate(lines, 1)]
    return Text(tuple(spans))


def parse(text: Text) -> Script:
    """Syntax tree of a script; TooLong when it is no launch script by any measure."""
    data = text.plain.encode("utf-8", "replace")
    if len(data) > MAX_SOURCE:
        raise TooLong(f"{len(data)} bytes")
    tree = _parse_bytes(data)
    return Script(text, data, tree, None if len(data) == len(text) else _character_index(text.plain))


def _parse_bytes(data: bytes) -> Node:
    import tree_sitter_bash
    from tree_sitter import Language, Parser

    parser = Parser(Language(tree_sitter_bash.language()))
    deadline = time.monotonic() + MAX_PARSE_SECONDS
    late = False

    def read(offset: int, _point: object) -> bytes:
        # The grammar is quadratic on some nonsense; ending the input is the way to stop it.
        nonlocal late
        late = late or time.monotonic() > deadline
        return b"" if late else data[offset : offset + CHUNK]

    tree = parser.parse(read)
    if late or tree is None:
        raise TooLong("nested or tangled beyond reading")
    return tree.root_node


def _character_index(text: str) -> array[int]:
    index = array("I")
    for number, char in enumerate(text):
        index.extend([number] * len(char.encode("utf-8", "replace")))
    index.append(len(text))
    return index
