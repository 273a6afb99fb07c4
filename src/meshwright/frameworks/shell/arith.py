"""Shell arithmetic, `$(( ... ))`: 64-bit whole numbers, never Python's `eval`.

An expression that needs something unknown is unknown; `Open` carries the names it depends on.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

TOKEN = re.compile(
    r"\s*(?:(?P<number>0[xX][0-9a-fA-F]+|\d+#[0-9a-zA-Z]+|\d+)|(?P<name>[A-Za-z_]\w*)"
    r"|(?P<op>\*\*|<<=|>>=|<<|>>|<=|>=|==|!=|&&|\|\||\+\+|--|[-+*/%&|^]=|[-+*/%<>=!~&|^?:(),\[\]])"
    r"|(?P<other>\S))"
)
BINARY = {
    "||": 1, "&&": 2, "|": 3, "^": 4, "&": 5, "==": 6, "!=": 6, "<": 7, ">": 7, "<=": 7, ">=": 7,
    "<<": 8, ">>": 8, "+": 9, "-": 9, "*": 10, "/": 10, "%": 10, "**": 11,
}  # fmt: skip
ASSIGN = {"=", "+=", "-=", "*=", "/=", "%=", "<<=", ">>=", "&=", "|=", "^="}
MAX_LENGTH = 4096
MAX_DEPTH = 60


@dataclass(frozen=True)
class Open(Exception):  # noqa: N818 - it is an answer ("unknown"), not an error of the program
    """The value depends on inputs that are not known."""

    names: frozenset[str]


Look = Callable[[str, str | None], int]
"""Value of a variable (and subscript); raises Open when it is not known."""
Store = Callable[[str, str | None, int], None]
IsKey = Callable[[str, str], bool]
"""Whether a word between brackets is a key of that associative array, and no variable."""


def wrapped(value: int) -> int:
    """`value` as a signed 64-bit number."""
    return (value + 2**63) % 2**64 - 2**63


def _no_key(name: str, word: str) -> bool:
    return False


def evaluate(expression: str, look: Look, store: Store, is_key: IsKey = _no_key) -> int:
    """Value of an arithmetic expression; raises Open when it cannot be known."""
    if len(expression) > MAX_LENGTH:
        raise Open(frozenset({"an arithmetic expression that is too long"}))
    tokens: list[str] = [match.group().strip() for match in TOKEN.finditer(expression)]
    if not [token for token in tokens if token]:
        return 0
    parser = _Parser([token for token in tokens if token], look, store, is_key)
    value = parser.comma()
    if parser.tokens:
        raise Open(frozenset({f"the arithmetic expression {expression.strip()[:60]!r}"}))
    return value


class _Parser:
    """Precedence climbing over a list of tokens, left to right."""

    def __init__(self, tokens: list[str], look: Look, store: Store, is_key: IsKey) -> None:
        self.tokens = tokens[::-1]
        self.look, self.store, self.is_key = look, store, is_key
        self.depth = 0

    def peek(self) -> str:
        return self.tokens[-1] if self.tokens else ""

    def take(self) -> str:
        if not self.tokens:
            raise Open(frozenset({"an unfinished arithmetic expression"}))
        return self.tokens.pop()

    def comma(self) -> int:
        value = self.ternary()
        while self.peek() == ",":
            self.take()
            value = self.ternary()
        return value

    def ternary(self) -> int:
        self.depth += 1
        if self.depth > MAX_DEPTH:
            raise Open(frozenset({"an arithmetic expression nested too deeply"}))
        value = self.binary(1)
        if self.peek() == "?":
            self.take()
            yes = self.ternary()
            if self.take() != ":":
                raise Open(frozenset({"an arithmetic expression"}))
            no = self.ternary()
            value = yes if value else no
        self.depth -= 1
        return value

    def binary(self, lowest: int) -> int:
        left = self.unary()
        while (level := BINARY.get(self.peek(), 0)) >= lowest:
            operator = self.take()
            right = self.binary(level if operator == "**" else level + 1)
            left = apply(operator, left, right)
        return left

    def unary(self) -> int:
        self.depth += 1
        if self.depth > MAX_DEPTH:
            raise Open(frozenset({"an arithmetic expression nested too deeply"}))
        token = self.take()
        value = self.operand(token)
        self.depth -= 1
        return value

    def operand(self, token: str) -> int:
        if token in ("-", "+", "!", "~"):
            value = self.unary()
            return {"-": wrapped(-value), "+": value, "!": int(not value), "~": ~value}[token]
        if token in ("++", "--"):
            name, index = self.place(self.take())
            value = wrapped(self.look(name, index) + (1 if token == "++" else -1))
            self.store(name, index, value)
            return value
        if token == "(":
            value = self.comma()
            if self.take() != ")":
                raise Open(frozenset({"an arithmetic expression"}))
            return value
        if token[0].isdigit():
            return number(token)
        name, index = self.place(token)
        return self.variable(name, index)

    def place(self, token: str) -> tuple[str, str | None]:
        if not (token[0].isalpha() or token[0] == "_"):
            raise Open(frozenset({f"the arithmetic word {token!r}"}))
        if self.peek() != "[":
            return token, None
        self.take()
        literal = self.tokens[-2:-1] == ["]"] and self.is_key(token, self.tokens[-1])
        index = self.take() if literal else str(self.comma())
        if self.take() != "]":
            raise Open(frozenset({"an arithmetic subscript"}))
        return token, index

    def variable(self, name: str, index: str | None) -> int:
        if self.peek() in ASSIGN:
            operator = self.take()
            value = self.ternary()
            if operator != "=":
                value = apply(operator[:-1], self.look(name, index), value)
            self.store(name, index, value)
            return value
        value = self.look(name, index)
        if self.peek() in ("++", "--"):
            self.store(name, index, wrapped(value + (1 if self.take() == "++" else -1)))
        return value


def number(token: str) -> int:
    """A shell number: decimal, 0x hexadecimal, 0 octal, base#digits."""
    try:
        if "#" in token:
            base, _, digits = token.partition("#")
            return wrapped(int(digits, int(base)))
        if token[:2].lower() == "0x":
            return wrapped(int(token, 16))
        return wrapped(int(token, 8) if len(token) > 1 and token[0] == "0" else int(token[:20]))
    except ValueError:
        raise Open(frozenset({f"the number {token!r}"})) from None


def apply(operator: str, left: int, right: int) -> int:
    """One binary operation with C's rounding (towards zero)."""
    if operator in ("/", "%"):
        if right == 0:
            raise Open(frozenset({"a division by zero"}))
        quotient = abs(left) // abs(right) * (1 if (left < 0) == (right < 0) else -1)
        return wrapped(quotient if operator == "/" else left - right * quotient)
    if operator == "**":
        if not 0 <= right <= 64:
            raise Open(frozenset({f"the power {left}**{right}"}))
        return wrapped(left**right)
    if operator in ("<<", ">>"):
        shift = right % 64
        return wrapped(left << shift if operator == "<<" else left >> shift)
    table: dict[str, Callable[[], int]] = {
        "+": lambda: left + right,
        "-": lambda: left - right,
        "*": lambda: left * right,
        "&": lambda: left & right,
        "|": lambda: left | right,
        "^": lambda: left ^ right,
        "==": lambda: int(left == right),
        "!=": lambda: int(left != right),
        "<": lambda: int(left < right),
        ">": lambda: int(left > right),
        "<=": lambda: int(left <= right),
        ">=": lambda: int(left >= right),
        "&&": lambda: int(bool(left) and bool(right)),
        "||": lambda: int(bool(left) or bool(right)),
    }
    return wrapped(table[operator]())
