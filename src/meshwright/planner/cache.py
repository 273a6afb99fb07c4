"""Searches kept by content: the same question with the same axes is answered at once.

Whoever serves many questions (the web page) owns one `SearchCache`; nothing here is global.
"""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, is_dataclass
from threading import Lock
from typing import Any

import numpy as np

from meshwright.cost.question import Question
from meshwright.planner.ranking import Known
from meshwright.planner.search import Found, Progress, search
from meshwright.planner.space import Axes


def content_key(*values: object) -> str:
    """A digest that is equal exactly for equal content, in any process.

    >>> content_key(frozenset({"a", "b"})) == content_key(frozenset({"b", "a"}))
    True
    """
    return hashlib.sha256(repr([_plain(value) for value in values]).encode()).hexdigest()


def _plain(value: Any) -> Any:
    """Nested tuples in a fixed order, each with the kind of what it stands for."""
    if is_dataclass(value) and not isinstance(value, type):
        inner = [(item.name, _plain(getattr(value, item.name))) for item in fields(value)]
        return (type(value).__name__, tuple(inner))
    if isinstance(value, Mapping):
        return ("map", tuple(sorted((repr(_plain(k)), _plain(v)) for k, v in value.items())))
    if isinstance(value, set | frozenset):
        return ("set", tuple(sorted(repr(_plain(item)) for item in value)))
    if isinstance(value, list | tuple):
        return ("list", tuple(_plain(item) for item in value))
    if isinstance(value, np.ndarray):
        return ("array", value.shape, str(value.dtype), value.tobytes())
    return (type(value).__name__, repr(value))


@dataclass(slots=True)
class SearchCache:
    """The last searches, by content; safe to use from several threads.

    most       searches kept
    most_rows  layouts kept in all of them together: about 150 bytes each
    """

    most: int = 64
    most_rows: int = 2_000_000
    _kept: OrderedDict[str, Found] = field(default_factory=OrderedDict)
    _lock: Lock = field(default_factory=Lock)

    def __len__(self) -> int:
        return len(self._kept)

    def search(
        self, question: Question, axes: Axes, progress: Progress | None = None,
        practice: Sequence[Known] = (), *, keep: float | None = None,
    ) -> Found:  # fmt: skip
        """As `search.search`; an interrupted search is not kept."""
        key = content_key(question, axes, tuple(practice), keep)
        with self._lock:
            known = self._kept.get(key)
            if known is not None:
                self._kept.move_to_end(key)
                return known
        found = search(question, axes, progress, practice, keep=keep)
        if not found.partial:
            self._keep(key, found)
        return found

    def _keep(self, key: str, found: Found) -> None:
        with self._lock:
            self._kept[key] = found
            while len(self._kept) > 1 and (
                len(self._kept) > self.most
                or sum(len(one.table) for one in self._kept.values()) > self.most_rows
            ):
                self._kept.popitem(last=False)
