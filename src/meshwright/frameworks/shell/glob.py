"""Shell patterns, without regular expressions, so that no pattern can run for long."""

from __future__ import annotations

from functools import lru_cache

MAX_TEXT = 4096
SLOW_TEXT = 128
"""Longest text and pattern that are matched at every place."""


def matches(text: str, pattern: str) -> bool:
    """Whether the whole text matches a shell pattern (`*`, `?`, `[...]`, backslash quotes)."""
    if len(text) > MAX_TEXT or len(pattern) > MAX_TEXT:
        return text == pattern
    tokens = _tokens(pattern)
    at, token, star, retry = 0, 0, -1, 0
    while at < len(text):
        if token < len(tokens) and tokens[token] == "*":
            star, retry = token, at
            token += 1
        elif token < len(tokens) and _one(text[at], tokens[token]):
            at, token = at + 1, token + 1
        elif star >= 0:
            retry += 1
            at, token = retry, star + 1
        else:
            return False
    return all(rest == "*" for rest in tokens[token:])


@lru_cache(256)
def _tokens(pattern: str) -> tuple[str, ...]:
    """One token a character class: `*`, `?`, `[..]` or a literal as `=c`."""
    tokens: list[str] = []
    at = 0
    while at < len(pattern):
        char = pattern[at]
        close = pattern.find("]", at + 2) if char == "[" else -1
        if char == "\\" and at + 1 < len(pattern):
            tokens.append("=" + pattern[at + 1])
            at += 2
        elif close > 0:
            tokens.append(pattern[at : close + 1])
            at = close + 1
        else:
            tokens.append(char if char in "*?" else "=" + char)
            at += 1
    return tuple(tokens)


def _one(char: str, token: str) -> bool:
    if token == "?":
        return True
    if token[0] == "=":
        return token[1:] == char
    body = token[1:-1]
    negated = body[:1] in ("!", "^")
    body = body[1:] if negated else body
    inside = char in body
    for index in range(len(body) - 2):
        if body[index + 1] == "-":
            inside = inside or body[index] <= char <= body[index + 2]
    return inside != negated


def _is_plain(pattern: str) -> bool:
    return not any(char in "*?[\\" for char in pattern)


def cut_prefix(text: str, pattern: str, *, longest: bool) -> int:
    """How many characters at the start the pattern matches, -1 for none."""
    if _is_plain(pattern):
        return len(pattern) if text.startswith(pattern) else -1
    if pattern[0] == "*" and _is_plain(pattern[1:]) and pattern[1:]:
        at = text.rfind(pattern[1:]) if longest else text.find(pattern[1:])
        return at + len(pattern) - 1 if at >= 0 else -1
    if len(text) > SLOW_TEXT or len(pattern) > SLOW_TEXT:
        return -1
    order = range(len(text), -1, -1) if longest else range(len(text) + 1)
    return next((size for size in order if matches(text[:size], pattern)), -1)


def cut_suffix(text: str, pattern: str, *, longest: bool) -> int:
    """How many characters at the end the pattern matches, -1 for none."""
    if _is_plain(pattern):
        return len(pattern) if text.endswith(pattern) else -1
    if pattern[-1] == "*" and _is_plain(pattern[:-1]) and pattern[:-1]:
        at = text.find(pattern[:-1]) if longest else text.rfind(pattern[:-1])
        return len(text) - at if at >= 0 else -1
    if len(text) > SLOW_TEXT or len(pattern) > SLOW_TEXT:
        return -1
    order = range(len(text), -1, -1) if longest else range(len(text) + 1)
    return next((size for size in order if matches(text[len(text) - size :], pattern)), -1)


def find(text: str, pattern: str, start: int) -> tuple[int, int] | None:
    """First match (start, stop) at or after `start`, the longest at its place."""
    if not any(char in "*?[" for char in pattern):
        plain = pattern.replace("\\", "")
        at = text.find(plain, start) if plain else -1
        return (at, at + len(plain)) if at >= 0 else None
    if len(text) > SLOW_TEXT // 2 or len(pattern) > SLOW_TEXT // 2:
        return None
    for begin in range(start, len(text)):
        for stop in range(len(text), begin, -1):
            if matches(text[begin:stop], pattern):
                return begin, stop
    return None
