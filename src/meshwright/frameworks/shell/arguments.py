"""`getopts` over known arguments, and `envsubst` over a template."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from meshwright.frameworks.shell.text import Text

if TYPE_CHECKING:
    from meshwright.frameworks.shell.evaluate import Shell, Status


def getopts(shell: Shell, words: list[Text]) -> Status:
    """`getopts "t:p:" opt`: the next option of the arguments; open where they are not given."""
    state = shell.state
    given = words[3:] or state.positional
    if len(words) < 3 or not (state.arguments_given or words[3:]):
        shell.output.append(shell.unknowns.text({"getopts"}, words[0].mark))
        return None
    letters, name, mark = words[1].plain.lstrip(":"), words[2].plain, words[0].mark
    at = _whole(shell, "OPTIND", 1)
    within = _whole(shell, "_OPTCHAR", 1)
    word = given[at - 1] if at <= len(given) else Text()
    if len(word) < 2 or word.plain[0] != "-" or word.plain == "--":
        state.set("OPTIND", Text.of(str(at + (word.plain == "--")), mark))
        state.set(name, Text.of("?", mark))
        return 1
    letter = word.plain[within]
    place = letters.find(letter)
    rest = word.slice(within + 1, len(word))
    takes = place >= 0 and letters[place + 1 : place + 2] == ":"
    state.set(name, Text.of(letter if place >= 0 else "?", mark))
    if takes:
        following = given[at] if at < len(given) else Text()
        state.set("OPTARG", rest if len(rest) else following)
        at, within = at + (1 if len(rest) else 2), 1
    elif len(rest):
        within += 1
    else:
        at, within = at + 1, 1
    state.set("OPTIND", Text.of(str(at), mark))
    state.set("_OPTCHAR", Text.of(str(within), mark))
    return 0


def _whole(shell: Shell, name: str, otherwise: int) -> int:
    value = shell.state.scalar(name)
    return int(value.plain[:6]) if value is not None and value.plain.isdigit() else otherwise


def envsubst(shell: Shell, words: list[Text]) -> Status:
    """Exported variables put in for `$NAME` and `${NAME}`; with an argument, only those it names."""
    if shell.stdin is None:
        shell.output.append(shell.unknowns.text({"envsubst"}, words[0].mark))
        return None
    environment = shell.state.environment()
    only = set(re.findall(r"\w+", words[1].plain)) if len(words) > 1 else None
    pieces: list[Text] = []
    at = 0
    for found in re.finditer(r"\$(?:\{([A-Za-z_]\w*)\}|([A-Za-z_]\w*))", shell.stdin.plain):
        name = found.group(1) or found.group(2)
        if only is not None and name not in only:
            continue
        unset = shell.expander().unset(name, shell.stdin.mark_at(found.start()))
        pieces += [shell.stdin.slice(at, found.start()), environment.get(name, unset)]
        at = found.end()
    text = Text.join([*pieces, shell.stdin.slice(at, len(shell.stdin))])
    shell.budget.spend(1, len(text))
    shell.output.append(text)
    return 0
