"""A small SVG writer: elements as text, short numbers, escaped words, and the frame of a picture.

Colours are classes (`c0` .. `c7`, `ink`, `line`), whose values for light, dark and paper are in
`data/pictures.css`; a picture is therefore the same text on every background.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import resources
from xml.sax.saxutils import escape, quoteattr

WIDTH = 760.0
"""Width of a picture where nobody asks for another [px]."""
NARROWEST = 320.0
WIDEST = 2000.0
LETTER = 6.4
"""Width of a letter of a label at its usual size, on the safe side [px]."""
LINE = 16.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Picture:
    """One finished picture.

    name         a slug: file names and anchors
    title        what it shows, for headings and screen readers
    description  the same in words, with its most important numbers
    svg          the drawing
    """

    name: str
    title: str
    description: str
    svg: str

    def as_dict(self) -> dict[str, str]:
        return {"name": self.name, "title": self.title, "description": self.description, "svg": self.svg}

    def _repr_svg_(self) -> str:
        """What a notebook shows."""
        return self.standalone()

    def standalone(self) -> str:
        """The drawing as a file of its own, with its colours in it."""
        head, body = self.svg.split(">", 1)
        return f'<?xml version="1.0" encoding="UTF-8"?>\n{head}><style>{stylesheet()}</style>{body}'


@cache
def stylesheet() -> str:
    """The CSS that gives the classes of every picture their colours."""
    return resources.files(__package__).joinpath("data", "pictures.css").read_text(encoding="utf-8")


def number(value: float) -> str:
    """A coordinate with at most one decimal.

    >>> number(3.0), number(1.26)
    ('3', '1.3')
    """
    text = f"{value:.1f}"
    return text[:-2] if text.endswith(".0") else text


def element(name: str, *children: str, **attributes: object) -> str:
    """One element; a trailing `_` of an attribute name is dropped and other `_` become `-`."""
    words = [name]
    for key, value in attributes.items():
        if value is None:
            continue
        shown = number(value) if isinstance(value, float) else str(value)
        words.append(f"{key.rstrip('_').replace('_', '-')}={quoteattr(shown)}")
    opened = " ".join(words)
    return f"<{opened}>{''.join(children)}</{name}>" if children else f"<{opened}/>"


def text(
    x: float,
    y: float,
    words: object,
    *,
    anchor: str = "start",
    class_: str = "ink",
    rotate: float | None = None,
) -> str:
    """A label whose baseline starts, ends or is centred at (x, y)."""
    turn = f"rotate({number(rotate)} {number(x)} {number(y)})" if rotate is not None else None
    return element(
        "text",
        escape(str(words)),
        x=float(x),
        y=float(y),
        class_=class_,
        text_anchor=anchor if anchor != "start" else None,
        transform=turn,
    )


def rect(
    x: float, y: float, width: float, height: float, class_: str, hint: str = "", radius: float = 0.0
) -> str:
    """A box; `hint` is shown where the pointer rests on it."""
    inside = (element("title", escape(hint)),) if hint else ()
    return element(
        "rect", *inside, x=float(x), y=float(y), width=max(float(width), 0.0), height=max(float(height), 0.0),
        class_=class_, rx=radius or None,
    )  # fmt: skip


def line(x1: float, y1: float, x2: float, y2: float, class_: str = "line") -> str:
    return element("line", x1=float(x1), y1=float(y1), x2=float(x2), y2=float(y2), class_=class_)


def polyline(points: Iterable[tuple[float, float]], class_: str) -> str:
    return element("polyline", points=" ".join(f"{number(x)},{number(y)}" for x, y in points), class_=class_)


def picture(
    name: str, title: str, description: str, width: float, height: float, body: Iterable[str]
) -> Picture:
    """The frame around a drawing: size, title and description for screen readers."""
    drawn = "".join(body)
    mark = f"{name}-{zlib.crc32((drawn + description).encode()):08x}"
    svg = element(
        "svg",
        element("title", escape(title), id=f"{mark}-t"),
        element("desc", escape(description), id=f"{mark}-d"),
        drawn,
        xmlns="http://www.w3.org/2000/svg",
        class_="picture",
        role="img",
        aria_labelledby=f"{mark}-t {mark}-d",
        viewBox=f"0 0 {number(width)} {number(height)}",
        width=float(width),
        height=float(height),
    )
    return Picture(name=name, title=title, description=description, svg=svg)


def legend(items: Sequence[tuple[str, str]], x: float, y: float, width: float) -> tuple[str, float]:
    """Swatches with their words, wrapped to a width: the drawing, and the height it takes.

    items  (class, words); a class that starts with "line" or "dash" is drawn as a stroke
    """
    parts: list[str] = []
    at, row = x, y
    for class_, words in items:
        needs = 18 + LETTER * len(words) + 14
        if at > x and at + needs > x + width:
            at, row = x, row + LINE + 2
        if class_.startswith(("line", "dash", "front")):
            parts.append(line(at, row + 6, at + 12, row + 6, class_))
        else:
            parts.append(rect(at, row, 12, 12, class_, radius=2))
        parts.append(text(at + 17, row + 10.5, words, class_="ink small"))
        at += needs
    return "".join(parts), row - y + LINE + 4


def fit_width(width: float) -> float:
    """A width that can be drawn in.

    >>> fit_width(10), fit_width(800)
    (320.0, 800.0)
    """
    return min(max(float(width), NARROWEST), WIDEST)


def shorten(words: str, room: float) -> str:
    """Words cut to a room [px].

    >>> shorten("a long sentence", 40)
    'a lo…'
    """
    most = max(int(room / LETTER), 1)
    return words if len(words) <= most else words[: max(most - 2, 1)].rstrip() + "…"
