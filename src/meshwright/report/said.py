"""A finished terminal screen in another language: its words are said, its styles and columns stay."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from meshwright.lang import Say
from meshwright.report.fitted import Fitted, Foldable

NO_SPACE = ("（", "）", "：", "，", "；", "。", "、")
"""Wide signs that bring their own space."""
COUNTING = "个"


def said(screen: RenderableType, say: Say) -> RenderableType:
    """The same screen with every text in it said by `say`."""
    if isinstance(screen, str):
        return say(screen)
    if isinstance(screen, Text):
        return _text(screen, say)
    if isinstance(screen, Group):
        return Group(*(said(part, say) for part in screen.renderables))
    if isinstance(screen, Padding):
        return Padding(said(screen.renderable, say), (screen.top, screen.right, screen.bottom, screen.left))
    if isinstance(screen, Table):
        return _table(screen, say)
    if isinstance(screen, Foldable):
        return Foldable(_table(screen.table, say))
    if isinstance(screen, Fitted):
        return Fitted(lambda width: said(screen.draw(width), say))
    return screen


def _text(text: Text, say: Say) -> Text:
    """Each stretch of one style by itself, so that styles stay where they were."""
    edges = sorted({edge for span in text.spans for edge in (span.start, span.end)})
    pieces = text.divide(edges) if edges else [text]
    parts = [(_close(say(piece.plain)), _style(piece)) for piece in pieces if piece.plain]
    out = Text(style=text.style, justify=text.justify, overflow=text.overflow, no_wrap=text.no_wrap)
    for number, (words, style) in enumerate(parts):
        after = parts[number + 1][0] if number + 1 < len(parts) else ""
        out.append(words.rstrip(" ") if after.lstrip(" ").startswith(NO_SPACE) else words, style)
    return out


def _close(words: str) -> str:
    """Without a space before or after a sign that has space of its own."""
    core = words.strip(" ")
    words = words.lstrip(" ") if core.startswith(NO_SPACE) else words
    return words.rstrip(" ") if core.endswith(NO_SPACE) else words


def _style(piece: Text) -> Any:
    return piece.spans[0].style if piece.spans else ""


def _table(table: Table, say: Say) -> Table:
    for column in table.columns:
        column.header = _header(column.header, say)
        column._cells = list(_cells(column._cells, say))
        if column.min_width is not None and isinstance(column.header, str):
            column.min_width = max(column.min_width, Text(column.header).cell_len)
    return table


def _header(header: RenderableType, say: Say) -> RenderableType:
    """What heads a column, without the counting word that stands between a number and what it counts."""
    words = said(header, say)
    return words.removeprefix(COUNTING).lstrip() if isinstance(words, str) else words


def _cells(cells: Iterable[RenderableType], say: Say) -> Iterable[RenderableType]:
    return (said(cell, say) for cell in cells)
