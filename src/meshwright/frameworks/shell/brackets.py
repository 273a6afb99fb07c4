"""Finding the bracket that closes a shell expansion, in one pass and without recursion."""

from __future__ import annotations

import re

CASE = re.compile(r"case\s[^\n;]{1,300}?\sin\s")
BEFORE_COMMAND = re.compile(r"(?:[(;\n&|{]|\b(?:then|do|else))\s*$")
HERE = re.compile(r"<<-?[ \t]*(['\"]?)([A-Za-z_]\w*)\1")
LAST_ESAC, DOCUMENTS = -1, -2
"""Notes of one search, beside the places to skip from."""
MAX_DOCUMENTS = 50


def closing_paren(text: str, start: int) -> int:
    """Index of the `)` that closes the `(` at `start`; end of text when none does."""
    return _closing(text, start)


def closing_brace(text: str, start: int) -> int:
    """Index of the `}` that closes the `{` at `start`; end of text when none does."""
    return _closing(text, start)


def _closing(text: str, start: int) -> int:
    """A stack of open brackets, `case` and double quotes; single quotes count outside double quotes."""
    stack: list[str] = []
    at = start
    skips: dict[int, int] = {}
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
        elif char in "ce#<\n" and top in ("(", "case"):
            at = _in_command(text, at, stack, skips)
            continue
        at += 1
    return len(text)


def _in_command(text: str, at: int, stack: list[str], skips: dict[int, int]) -> int:
    """Words inside `$(...)` whose brackets and quotes do not pair: `case`, comments, here-documents."""
    char = text[at]
    if char == "\n":
        return skips.get(at, at + 1)
    alone = at == 0 or not (text[at - 1].isalnum() or text[at - 1] in "_-$")
    if char == "c" and alone and (found := CASE.match(text, at)):
        if LAST_ESAC not in skips:
            skips[LAST_ESAC] = text.rfind("esac")
        if BEFORE_COMMAND.search(text[max(0, at - 12) : at]) and skips[LAST_ESAC] >= found.end():
            stack.append("case")
            return found.end()
    elif char == "e" and alone and stack[-1] == "case" and text.startswith("esac", at):
        stack.pop()
        return at + 4
    elif char == "#" and text[at - 1 : at] in (" ", "\t", "\n") and not _is_sum(text, at):
        end = text.find("\n", at)
        return end if end >= 0 else len(text)
    elif char == "<" and text[at + 1 : at + 2] == "<":
        if text[at + 2 : at + 3] == "<":
            return at + 3
        skips[DOCUMENTS] = skips.get(DOCUMENTS, 0) + 1
        here = HERE.match(text, at) if skips[DOCUMENTS] < MAX_DOCUMENTS else None
        if here is not None and (line := text.find("\n", here.end())) >= 0:
            last = re.compile(rf"^\t*{here.group(2)}$", re.MULTILINE).search(text, line + 1)
            if last is not None:
                skips[line] = last.end()
            return here.end()
    return at + 1


def _is_sum(text: str, at: int) -> bool:
    """Whether the line so far is arithmetic, where `#` is no comment."""
    near = text[max(0, at - 200) : at]
    return "((" in near[near.rfind("\n") + 1 :]
