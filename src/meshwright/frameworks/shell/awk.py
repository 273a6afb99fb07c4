"""The small part of awk that launch scripts use: `/x/ {print $2}`, `NR==1`, `BEGIN {print a * 8}`, sums.

Statements: print, printf, assignments, `;`. Expressions: numbers, strings, fields, variables, arithmetic,
comparisons, `~`, `&&`, `||`, `?:`, int(). Anything else is not understood; nothing loops.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass

from meshwright.frameworks.shell import patterns

TOKEN = re.compile(
    r"\s*(?:(?P<number>\d+\.?\d*(?:[eE][-+]?\d+)?|\.\d+)|(?P<string>\"(?:[^\"\\\n]|\\.)*\")"
    r"|(?P<name>[A-Za-z_]\w*)|(?P<op>\*\*|&&|\|\||==|!=|<=|>=|\+=|-=|\*=|/=|\+\+|--|[-+*/%^<>=!~?:(),;$]))"
)
PIECE = r"(?:[^{}\"/\s]|\"[^\"\n]*\")"
RULE = re.compile(
    rf"\s*(?P<pattern>/(?:[^/\\\n]|\\.)*/|{PIECE}(?:(?:{PIECE}|\s)*{PIECE})?|)\s*"
    r"(?:\{(?P<body>(?:[^{}\"]|\"(?:[^\"\\]|\\.)*\")*)\}|$|;)"
)
MAX_PROGRAM = 2_000
MAX_STEPS = 200_000
MAX_DEPTH = 40
LEVELS: dict[str, int] = {
    "||": 1, "&&": 2, "~": 3, "==": 4, "!=": 4, "<": 4, ">": 4, "<=": 4, ">=": 4,
    "+": 6, "-": 6, "*": 7, "/": 7, "%": 7, "^": 9, "**": 9,
}  # fmt: skip
BEYOND = frozenset(
    {"next", "nextfile", "getline", "delete", "if", "else", "for", "while", "do", "in", "function", "return"}
    | {"break", "continue", "OFS", "ORS", "RS", "FNR", "FILENAME", "ENVIRON", "ARGC", "ARGV", "SUBSEP"}
    | {"CONVFMT", "OFMT", "RSTART", "RLENGTH", "print", "printf", "exit", "length"}
)
"""Words of the language that are no variables (`length` without brackets too)."""
Value = str | float


class NotUnderstood(Exception):  # noqa: N818 - the caller turns it into "open"
    """Beyond the part of awk that is read."""


@dataclass(frozen=True)
class Rule:
    pattern: str
    body: str | None


@dataclass(frozen=True)
class Program:
    """BEGIN, rules for lines, END, in order."""

    rules: tuple[Rule, ...]

    @property
    def only_begin(self) -> bool:
        return all(rule.pattern == "BEGIN" for rule in self.rules)


def parse(text: str) -> Program | None:
    """The rules of a program; None when it is not of the simple kind."""
    if len(text) > MAX_PROGRAM:
        return None
    rules: list[Rule] = []
    at = 0
    while text[at:].strip(" \t\n;"):
        found = RULE.match(text, at)
        if found is None or found.end() == at:
            return None
        if found.group("pattern") or found.group("body") is not None:
            rules.append(Rule(found.group("pattern"), found.group("body")))
        at = found.end()
    return Program(tuple(rules)) if rules else None


def run(program: Program, lines: list[str], separator: str | None, variables: dict[str, str]) -> str | None:
    """Output over some lines; None where the program is not understood."""
    if BEYOND & set(variables):
        return None
    machine = _Machine(separator, dict(variables))
    try:
        for rule in program.rules:
            if rule.pattern == "BEGIN":
                machine.body(rule)
        for number, line in enumerate([] if program.only_begin or machine.done else lines, 1):
            machine.take_line(line, number)
            for rule in program.rules:
                if machine.done:
                    break
                if rule.pattern not in ("BEGIN", "END") and machine.holds(rule.pattern):
                    machine.body(rule)
            if machine.done:
                break
        machine.done = False
        for rule in program.rules:
            if rule.pattern == "END":
                machine.body(rule)
    except (NotUnderstood, ZeroDivisionError, OverflowError, ValueError, RecursionError, TypeError):
        return None
    return "".join(machine.out)


class _Machine:
    def __init__(self, separator: str | None, variables: dict[str, str]) -> None:
        self.separator = separator
        self.variables: dict[str, Value] = dict(variables)
        self.fields: list[str] = [""]
        self.out: list[str] = []
        self.steps = self.depth = 0
        self.done = False
        self.tokens: list[str] = []

    def take_line(self, line: str, number: int) -> None:
        if len(line) > patterns.MAX_LINE:
            raise NotUnderstood
        separator = self.separator
        if separator in (None, " "):
            parts = line.split()
        elif len(separator or "") == 1:
            parts = line.split(separator) if line else []
        else:
            compiled = patterns.compiled((separator or "").replace("\\t", "\t"), extended=True)
            if compiled is None or not patterns.affordable([compiled], [line] * 20):
                raise NotUnderstood
            parts = compiled.split(line) if line else []
        self.fields = [line, *parts]
        self.variables |= {"NR": float(number), "NF": float(len(parts))}

    def holds(self, pattern: str) -> bool:
        if not pattern:
            return True
        if pattern.startswith("/"):
            return self.matches(self.fields[0], pattern[1:-1])
        self.start(pattern)
        value = self.expression()
        self.finish()
        return _true(value)

    def matches(self, text: str, expression: str) -> bool:
        compiled = patterns.compiled(expression, extended=True)
        if compiled is None or not patterns.affordable([compiled], [text] * 20):
            raise NotUnderstood
        return compiled.search(text) is not None

    def start(self, text: str) -> None:
        tokens: list[str] = []
        at = 0
        while text[at:].strip():
            found = TOKEN.match(text, at)
            if found is None:
                raise NotUnderstood
            tokens.append(found.group().strip())
            at = found.end()
        self.tokens = tokens[::-1]

    def finish(self) -> None:
        if self.tokens:
            raise NotUnderstood

    def body(self, rule: Rule) -> None:
        self.start("print" if rule.body is None else rule.body.replace("\n", ";"))
        while self.tokens and not self.done:
            if self.tokens[-1] == ";":
                self.tokens.pop()
                continue
            self.statement()
            if self.tokens and self.tokens[-1] != ";":
                raise NotUnderstood

    def statement(self) -> None:
        if self.tokens[-1] == "exit":
            self.tokens.pop()
            self.done = True
        elif self.tokens[-1] in ("print", "printf"):
            word = self.tokens.pop()
            self.refuse_redirection()
            values: list[Value] = []
            while self.tokens and self.tokens[-1] != ";":
                values.append(self.expression())
                if self.tokens and self.tokens[-1] == ",":
                    self.tokens.pop()
            self.out.append(self.printed(word, values))
        else:
            self.expression()

    def refuse_redirection(self) -> None:
        """`print a > b` outside brackets writes to a file."""
        depth = 0
        for token in reversed(self.tokens):
            depth += (token == "(") - (token == ")")
            if token == ";":
                return
            if token == ">" and not depth:
                raise NotUnderstood

    def printed(self, word: str, values: list[Value]) -> str:
        if word == "print":
            return (" ".join(_text(value) for value in values) if values else self.fields[0]) + "\n"
        if not values:
            raise NotUnderstood
        arguments = iter(values[1:])

        def put(found: re.Match[str]) -> str:
            if found.group() == "%%":
                return "%"
            if found.group() == "%":
                raise NotUnderstood
            value = next(arguments, "")
            kind = found.group()[-1]
            if kind == "s":
                return found.group() % _text(value)
            return found.group() % (int(_number(value)) if kind == "d" else _number(value))

        return re.sub(r"%%|%-?0?\d{0,2}(?:\.\d)?[dsfgi]|%", put, _text(values[0]).replace("%i", "%d"))

    # expressions

    def expression(self, lowest: int = 1) -> Value:
        self.steps += 1
        self.depth += 1
        if self.steps > MAX_STEPS or self.depth > MAX_DEPTH:
            raise NotUnderstood
        left = self.binary(lowest)
        if lowest == 1 and self.tokens and self.tokens[-1] == "?":
            self.tokens.pop()
            yes = self.expression()
            self.expect(":")
            no = self.expression()
            left = yes if _true(left) else no
        self.depth -= 1
        return left

    def binary(self, lowest: int) -> Value:
        left = self.unary()
        while self.tokens:
            token = self.tokens[-1]
            level = LEVELS.get(token, 0)
            joins = not level and (token[0].isalnum() or token[0] in '"$(_') and lowest <= 5
            if joins:
                left = _text(left) + _text(self.expression(6))
                continue
            if level < lowest or not level:
                break
            self.tokens.pop()
            right = self.expression(level if level == 9 else level + 1)
            left = (
                self.matches(_text(left), _text(right)) * 1.0 if token == "~" else _apply(token, left, right)
            )
        return left

    def unary(self) -> Value:
        if not self.tokens:
            raise NotUnderstood
        token = self.tokens.pop()
        if token in ("-", "+", "!"):
            value = self.expression(8)
            return {"-": -_number(value), "+": _number(value), "!": float(not _true(value))}[token]
        if token == "(":
            value = self.expression()
            self.expect(")")
            return value
        if token == "$":
            index = int(_number(self.unary()))
            return self.fields[index] if 0 <= index < len(self.fields) else ""
        if token[0] == '"':
            return re.sub(r"\\(.)", lambda f: {"n": "\n", "t": "\t"}.get(f.group(1), f.group(1)), token[1:-1])
        if token[0].isdigit() or token[0] == ".":
            return float(token)
        if not (token[0].isalpha() or token[0] == "_") or (token in BEYOND and self.tokens[-1:] != ["("]):
            raise NotUnderstood
        return self.named(token)

    def named(self, token: str) -> Value:
        if token in ("int", "length") and self.tokens and self.tokens[-1] == "(":
            self.tokens.pop()
            value = self.expression()
            self.expect(")")
            return float(math.trunc(_number(value))) if token == "int" else float(len(_text(value)))
        if self.tokens and self.tokens[-1] == "(":
            raise NotUnderstood
        if self.tokens and self.tokens[-1] in ("=", "+=", "-=", "*=", "/="):
            operator = self.tokens.pop()
            value = self.expression()
            if operator != "=":
                value = _apply(operator[0], self.variables.get(token, ""), value)
            self.variables[token] = value
            if token == "FS":
                self.separator = _text(value)
            return value
        before = self.variables.get(token, "")
        if self.tokens and self.tokens[-1] in ("++", "--"):
            self.variables[token] = _number(before) + (1 if self.tokens.pop() == "++" else -1)
        return before

    def expect(self, token: str) -> None:
        if not self.tokens or self.tokens.pop() != token:
            raise NotUnderstood


def _number(value: Value) -> float:
    if isinstance(value, float):
        return value
    found = re.match(r"\s*[-+]?\d{1,18}(?:\.\d{0,18})?", value)
    return float(found.group()) if found else 0.0


def _text(value: Value) -> str:
    if isinstance(value, str):
        return value
    return str(int(value)) if value == int(value) and abs(value) < 2**53 else f"{value:.6g}"


def _true(value: Value) -> bool:
    return value != 0 if isinstance(value, float) else bool(value)


def _looks_numeric(value: Value) -> bool:
    return isinstance(value, float) or re.fullmatch(r"\s*-?\d{1,18}(?:\.\d{1,18})?\s*", value) is not None


def _apply(token: str, left: Value, right: Value) -> Value:
    if token in ("||", "&&"):
        return float((_true(left) or _true(right)) if token == "||" else (_true(left) and _true(right)))
    if token in ("==", "!=", "<", ">", "<=", ">="):
        numeric = _looks_numeric(left) and _looks_numeric(right)
        a, b = (_number(left), _number(right)) if numeric else (_text(left), _text(right))
        if isinstance(a, float) and isinstance(b, float):
            order = (a > b) - (a < b)
        else:
            order = (str(a) > str(b)) - (str(a) < str(b))
        return float(
            {"==": order == 0, "!=": order != 0, "<": order < 0, ">": order > 0, "<=": order <= 0}.get(
                token, order >= 0
            )
        )
    a, b = _number(left), _number(right)
    if token in ("^", "**"):
        if abs(b) > 64 or abs(a) > 1e6:
            raise NotUnderstood
        return float(a**b)
    if token == "%":
        return math.fmod(a, b)
    return {"+": a + b, "-": a - b, "*": a * b}[token] if token != "/" else a / b
