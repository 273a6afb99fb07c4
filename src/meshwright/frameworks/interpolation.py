"""Placeholders in configs: OmegaConf's `${a.b}`, `${.b}`, `${mul:a,b}`, `${oc.env:V,x}`, Primus' `${V:x}`."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace

from meshwright.frameworks.commands import supply
from meshwright.frameworks.documents import Flat
from meshwright.frameworks.reading import Plain, Source, Unknown, Value
from meshwright.frameworks.spelling import plain_value

MAX_DEPTH = 24
MAX_LENGTH = 2000
INNERMOST = re.compile(r"\$\{([^${}]*)\}")
MULTIPLY = ("mul", "multiply", "times", "prod")


class Open(Exception):  # noqa: N818 - an answer: the value is not settled
    def __init__(self, names: tuple[str, ...]) -> None:
        super().__init__(*names)
        self.names = names


@dataclass(frozen=True)
class Resolver:
    """Resolves placeholders against a document and the environment that is known."""

    flat: Flat
    environment: Mapping[str, str]

    def resolve(self, path: str, value: Value, depth: int = 0) -> Value:
        """The value with its placeholders filled in; raises Open when one cannot be."""
        text = value.value
        if not isinstance(text, str) or "${" not in text:
            return value
        if depth > MAX_DEPTH or len(text) > MAX_LENGTH:
            raise Open((f"the placeholder {text[:40]}",))
        source = value.source
        result: Plain = text
        for _ in range(MAX_DEPTH):
            found = INNERMOST.search(result) if isinstance(result, str) else None
            if found is None or not isinstance(result, str):
                break
            inner = self._one(path, found.group(1), depth)
            if inner.source.kind != "stated":
                source = replace(inner.source, file=source.file, line=source.line)
            if found.span() == (0, len(result)):
                result = inner.value
            else:
                result = result[: found.start()] + str(inner.value) + result[found.end() :]
            if isinstance(result, str) and len(result) > MAX_LENGTH:
                raise Open((f"the placeholder {text[:40]}",))
        return Value(plain_value(result) if isinstance(result, str) else result, source)

    def _one(self, path: str, inner: str, depth: int) -> Value:
        head, colon, rest = inner.partition(":")
        if not colon:
            return self._node(path, head.strip(), depth)
        name = head.strip()
        if name in ("oc.env", "env"):
            variable, comma, default = rest.partition(",")
            return self._variable(variable.strip(), default.strip() if comma else None)
        if re.fullmatch(r"[A-Z][A-Z0-9_]*", name):
            return self._variable(name, rest)
        return Value(self._computed(path, name, rest, depth))

    def _variable(self, name: str, default: str | None) -> Value:
        source = Source(kind="environment", name=name)
        if name in self.environment:
            return Value(plain_value(self.environment[name]), source)
        if default is None or default == "":
            raise Open((name,))
        return Value(plain_value(default), source)

    def _node(self, path: str, name: str, depth: int) -> Value:
        """Another value of the document; leading dots go up from the value's own group."""
        if not name.startswith("."):
            full = name
        else:
            dots = len(name) - len(name.lstrip("."))
            parents = path.split(".")[: -dots or None]
            full = ".".join([*parents, name.lstrip(".")]) if parents else name.lstrip(".")
        full = re.sub(r"\[['\"]?(\w+)['\"]?\]", r".\1", full)
        found = self.flat.get(full)
        if found is None:
            raise Open((full,))
        return self.resolve(full, found, depth + 1)

    def _computed(self, path: str, name: str, rest: str, depth: int) -> Plain:
        """`mul`, `add`, `div`, ... over numbers."""
        numbers: list[float] = []
        for word in rest.split(","):
            value = plain_value(word.strip())
            if isinstance(value, str):
                raise Open((f"${{{name}:{rest[:40]}}}",))
            if not isinstance(value, (int, float)):
                raise Open((f"${{{name}:{rest[:40]}}}",))
            numbers.append(value)
        if name in MULTIPLY:
            result = 1.0
            for number in numbers:
                result *= number
        elif name in ("add", "sum"):
            result = sum(numbers)
        elif name in ("sub", "subtract", "minus") and len(numbers) == 2:
            result = numbers[0] - numbers[1]
        elif name in ("div", "divide", "floordiv", "int_div") and len(numbers) == 2 and numbers[1]:
            result = numbers[0] // numbers[1]
        elif name in ("max", "min") and numbers:
            result = max(numbers) if name == "max" else min(numbers)
        else:
            raise Open((f"${{{name}:{rest[:40]}}}",))
        if not math.isfinite(result):
            raise Open((f"${{{name}:{rest[:40]}}}",))
        return int(result) if float(result).is_integer() and abs(result) < 2**53 else result


def resolved(flat: Flat, environment: Mapping[str, str]) -> tuple[Flat, dict[str, Unknown]]:
    """The document with placeholders filled in, and those that stay open by their path."""
    resolver = Resolver(flat, environment)
    done: Flat = {}
    open_: dict[str, Unknown] = {}
    for path, value in flat.items():
        try:
            done[path] = resolver.resolve(path, value)
        except Open as missing:
            open_[path] = Unknown(
                option=path, needs=missing.names, how=supply(missing.names), line=value.line
            )
    return done, open_
