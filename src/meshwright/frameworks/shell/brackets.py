"""Finding the bracket that closes a shell expansion, in one pass and without recursion."""

from __future__ import annotations


def closing_paren(text: str, start: int) -> int:
    """Index of the `)` that closes the `(` at `start`; end of text when none does."""
    return _closing(text, start)


def closing_brace(text: str, start: int) -> int:
    """Index of the `}` that closes the `{` at `start`; end of text when none does."""
    return _closing(text, start)


def _closing(text: str, start: int) -> int:
    """A stack of open brackets and double quotes; single quotes count outside double quotes."""
    stack: list[str] = []
    at = start
    while at < len(text):
        char = text[at]
        top = stack[-1] if stack else ""
        if char == "\\":
            at += 2
            continue
        if top == '"':
            if char == '"':
                stack.pop()
            elif char == "$" and text[at + 1 : at + 2] in ("(", "{"):
                stack.append(text[at + 1])
                at += 1
        elif char == '"':
            stack.append('"')
        elif char == "'" and not (top == "{" and '"' in stack):
            close = text.find("'", at + 1)
            at = close if close >= 0 else len(text)
        elif char == "$" and text[at + 1 : at + 2] == "{":
            stack.append("{")
            at += 1
        elif char == "(" and top != "{":
            stack.append("(")
        elif char == "$" and text[at + 1 : at + 2] == "(":
            stack.append("(")
            at += 1
        elif char == "{" and not stack:
            stack.append("{")
        elif (char == ")" and top == "(") or (char == "}" and top == "{"):
            stack.pop()
            if not stack:
                return at
        at += 1
    return len(text)
