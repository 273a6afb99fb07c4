"""Plain pieces that every screen shares: numbers with units, and rows that fit 80 columns."""

from __future__ import annotations

from meshwright.cluster.spec import GIB


def gib(value: float) -> str:
    """Bytes as GiB.

    >>> gib(3 * 1024**3)
    '3.0'
    """
    return f"{value / GIB:.1f}"


def seconds(value: float) -> str:
    """Seconds with three digits that matter.

    >>> seconds(0.01234), seconds(12.345)
    ('12.3 ms', '12.3 s')
    """
    return f"{value * 1e3:.3g} ms" if value < 1 else f"{value:.3g} s"


def count(value: float) -> str:
    """A large count in billions or millions.

    >>> count(671_026_419_200), count(37.5e6)
    ('671.0 B', '37.5 M')
    """
    return f"{value / 1e9:.1f} B" if abs(value) >= 1e9 else f"{value / 1e6:.1f} M"


def whole(value: float) -> str:
    """A degree: an integer, or the fraction that shows that it is not one."""
    return f"{value:,.0f}" if float(value).is_integer() else f"{value:,.3f}"
