"""The communication volume matrix: which kind of traffic goes over which link."""

from __future__ import annotations

from collections.abc import Sequence
from xml.sax.saxutils import escape

from meshwright.cluster.spec import GIB
from meshwright.cost.traffic import Traffic
from meshwright.report.svg.draw import WIDTH, Picture, element, fit_width, legend, picture, rect, text

LINKS = ("inside an NVLink domain", "over the network")
ROW, TOP = 30.0, 30.0
SHADES = (0.0, 0.03, 0.1, 0.3, 1.0)


def volume_picture(rows: Sequence[Traffic], width: float = WIDTH) -> Picture:
    """A row a kind of group, a column a kind of link; the shade says how much."""
    width = fit_width(width)
    left = 108.0
    column = (width - left - 8) / 2
    most = max((max(row.near, row.far) for row in rows), default=1.0) or 1.0
    parts = [text(4, 18, "group", class_="soft small")]
    heads = LINKS if column > 150 else ("NVLink", "network")
    parts += [
        text(left + k * column + column / 2, 18, f"{words} [GiB]", anchor="middle", class_="ink small")
        for k, words in enumerate(heads)
    ]
    for index, row in enumerate(rows):
        y = TOP + index * ROW
        parts.append(text(4, y + 19, f"{row.group.upper()} x {row.size}", class_="ink"))
        for k, size in enumerate((row.near, row.far)):
            parts.append(_cell(row, LINKS[k], size, most, left + k * column, y, column))
    bottom = TOP + ROW * len(rows) + 8
    keys, tall = legend(
        [("c0", "stronger: more bytes a GPU and step"), ("idle", "nothing")], 4, bottom, width - 8
    )
    parts.append(keys)
    near, far = sum(row.near for row in rows), sum(row.far for row in rows)
    words = (
        f"Each GPU sends about {near / GIB:.1f} GiB a step inside its NVLink domain and {far / GIB:.1f} GiB "
        "over the network: "
        + "; ".join(f"{row.group} {(row.near + row.far) / GIB:.2f} GiB ({row.carries})" for row in rows)
    )
    return picture("traffic", "Which link carries what", words, width, bottom + tall, parts)


def _cell(row: Traffic, link: str, size: float, most: float, x: float, y: float, column: float) -> str:
    share = size / most
    hint = f"{row.group}, {link}: {size / GIB:.3f} GiB a GPU and step; {row.carries}"
    if size <= 0:
        return element(
            "g",
            rect(x + 2, y + 2, column - 4, ROW - 4, "idle", hint, 3),
            text(x + column / 2, y + 19, "-", anchor="middle", class_="soft small"),
        )
    shade = element(
        "rect", element("title", escape(hint)), x=x + 2, y=y + 2, width=column - 4, height=ROW - 4, rx=3,
        class_="c0", opacity=f"{0.14 + 0.86 * share ** 0.5:.2f}",
    )  # fmt: skip
    class_ = "on small" if share > 0.35 else "ink small"
    return element("g", shade, text(x + column / 2, y + 19, _size(size), anchor="middle", class_=class_))


def _size(size: float) -> str:
    value = size / GIB
    return f"{value:,.1f}" if value >= 10 else f"{value:.2g}"
