"""Renderables that are drawn for the width they get: the same numbers in fewer columns."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.padding import Padding
from rich.table import Column, Table
from rich.text import Text

NARROW = 72
"""Below this many columns tables lose what can be spared, instead of cutting numbers."""


@dataclass(frozen=True, slots=True)
class Fitted:
    """Draws itself for a width in columns."""

    draw: Callable[[int], RenderableType]

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        yield self.draw(options.max_width)


def either(wide: Callable[[], RenderableType], narrow: Callable[[], RenderableType]) -> Fitted:
    """The wide form where there is room for it, else the narrow one."""
    return Fitted(lambda width: wide() if width >= NARROW else narrow())


@dataclass(frozen=True, slots=True)
class Foldable:
    """A table where there is room for it, else a few lines a row: no number is ever cut."""

    table: Table

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        columns = self.table.columns
        needed = sum(_least(console, column) for column in columns) + 2 * (len(columns) - 1)
        if needed <= options.max_width:
            yield self.table
        else:
            yield from _stacked(self.table)


def _least(console: Console, column: Column) -> int:
    """Characters that a column needs: its longest cell where it may not wrap, else its longest word."""
    least = 0
    for cell in (column.header, *column.cells):
        text = _text(cell)
        words = text.split("\n") if column.no_wrap else text.split()
        least = max([least, *(console.measure(word).maximum for word in words)])
    return least


def _stacked(table: Table) -> Iterator[RenderableType]:
    """One block a row: the first cell as its head, the others behind their names."""
    columns = [list(column.cells) for column in table.columns]
    heads = [_text(column.header) for column in table.columns]
    for number in range(table.row_count):
        cells = [cells[number] for cells in columns]
        yield Text(f"{heads[0]} {_text(cells[0])}".strip(), style="bold")
        for head, cell in zip(heads[1:], cells[1:], strict=True):
            if _text(cell).strip():
                words = cell if isinstance(cell, Text) else Text(str(cell))
                yield Padding(Text.assemble((f"{head}: ", "dim"), words, overflow="fold"), (0, 0, 0, 2))


def _text(cell: RenderableType) -> str:
    return cell.plain if isinstance(cell, Text) else str(cell)
