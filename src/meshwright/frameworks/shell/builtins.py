"""Commands of the evaluated shell: builtins, pure filters, redirections, nested shells.

Anything not listed here is a program somebody would start; it is recorded and its output is unknown.
"""

from __future__ import annotations

import os.path
import re
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from meshwright.frameworks import launchers
from meshwright.frameworks.shell import arguments, editing, filters, snippets
from meshwright.frameworks.shell.problems import Problem
from meshwright.frameworks.shell.redirections import read_file
from meshwright.frameworks.shell.script import text_of_file
from meshwright.frameworks.shell.signals import Break, Continue, Exit, Return
from meshwright.frameworks.shell.state import Array, State, Variable
from meshwright.frameworks.shell.text import Text

if TYPE_CHECKING:
    from meshwright.frameworks.shell.evaluate import Shell, Status

Words = list[Text]


def call(shell: Shell, words: Words, prefix: dict[str, Text]) -> Status:
    """Run one expanded command."""
    name = words[0].plain
    if name in shell.functions:
        return _function(shell, name, words[1:], prefix)
    if (builtin := BUILTINS.get(name)) is not None:
        return _with_prefix(shell, builtin, words, prefix)
    if (pure := filters.FILTERS.get(name)) is not None and not prefix:
        return _filtered(shell, pure, words)
    if (computed := snippets.run(shell, words, prefix)) is not None:
        return computed[0]
    return external(shell, words, prefix)


def _with_prefix(shell: Shell, builtin: Builtin, words: Words, prefix: dict[str, Text]) -> Status:
    """A builtin under `NAME=value builtin`: the variables hold only while it runs."""
    saved = {name: shell.state.variables.get(name) for name in prefix}
    shell.state.variables.update(prefix)
    try:
        return builtin(shell, words)
    finally:
        restore(shell.state, saved)


def restore(state: State, saved: Mapping[str, Variable | None]) -> None:
    """Put back variables as they were; None for those that were unset."""
    for name, value in saved.items():
        if value is None:
            state.variables.pop(name, None)
        else:
            state.variables[name] = value


def external(shell: Shell, words: Words, prefix: dict[str, Text]) -> Status:
    """A program: record it, or go into the shell it would start."""
    plain = [word.plain for word in words]
    if shell.nesting <= 10 and (entered := _other_shell(shell, words, plain)) is not None:
        return entered[0]
    inner = launchers.inner_shell(plain)
    if inner is None or shell.nesting > 10:
        mark = words[0].mark
        shell.output.append(shell.unknowns.text({shell.unknowns.shown(words[0])[:60]}, mark))
        return shell.launch(words, prefix)
    outer = words[: inner.start]
    saved_state, saved_wrappers, saved_directives = shell.state, list(shell.wrappers), shell.directives
    child = shell.state.copy()
    child.variables.update(prefix)
    child.exported |= set(prefix)
    for assignment in inner.assignments:
        name, _, value = words[assignment].partition("=")
        child.variables[name.plain] = value
        child.exported.add(name.plain)
    shell.state = child
    if outer:
        shell.wrappers.append(tuple(outer))
    try:
        return _nested(shell, words, inner, prefix)
    finally:
        shell.state, shell.wrappers, shell.directives = saved_state, saved_wrappers, saved_directives


def _other_shell(shell: Shell, words: Words, plain: list[str]) -> tuple[Status] | None:
    """A shell whose script comes from standard input (`sbatch <<EOT`), or that runs on another machine."""
    at = launchers.reads_input(plain)
    if at is not None and shell.stdin is not None:
        return (_separately(shell, words[:at], shell.stdin, shell.state.copy(), batch=True),)
    at = launchers.remote(plain)
    if at is not None:
        # Nothing of this machine's environment is there.
        return (_separately(shell, [], Text.join(words[at:], " "), State(), batch=False),)
    return None


def _separately(shell: Shell, outer: Words, content: Text, state: State, *, batch: bool) -> Status:
    """Run a text in a state of its own."""
    saved = shell.state, list(shell.wrappers), shell.directives, shell.stdin
    shell.state, shell.stdin = state, None if batch else shell.stdin
    if outer:
        shell.wrappers.append(tuple(outer))
    try:
        if batch:
            _slurm_defaults(shell, content)
        return shell.run_text(content)
    except (Exit, Return):
        return None
    finally:
        shell.state, shell.wrappers, shell.directives, shell.stdin = saved


def _nested(shell: Shell, words: Words, inner: launchers.InnerShell, prefix: dict[str, Text]) -> Status:
    content, arguments = words[inner.script], words[inner.script + 1 :]
    path = content.plain
    if not inner.command:
        found = shell.files.read(path, shell.state.cwd)
        if found is None:
            return shell.launch(words[inner.start :], prefix)
        content = found[1] if isinstance(found[1], Text) else text_of_file(found[1], found[0])
        _slurm_defaults(shell, content)
        shell.state.script = path
        shell.state.positional, shell.state.arguments_given = arguments, bool(arguments)
    elif arguments:
        shell.state.script = arguments[0].plain
        shell.state.positional, shell.state.arguments_given = arguments[1:], True
    try:
        return shell.run_text(content)
    except (Exit, Return):
        return None


def _slurm_defaults(shell: Shell, content: Text) -> None:
    shell.directives = launchers.slurm_directives(content) or shell.directives
    for name, text in launchers.slurm_variables(content).items():
        shell.state.variables.setdefault(name, text)


def _function(shell: Shell, name: str, arguments: Words, prefix: dict[str, Text]) -> Status:
    script, body = shell.functions[name]
    saved = (shell.state.positional, shell.state.arguments_given)
    shell.state.positional, shell.state.arguments_given = arguments, True
    shell.state.variables.update(prefix)
    state = shell.state
    shell.frames.append({})
    try:
        return shell.run(script, body)
    except Return as returned:
        return returned.status
    finally:
        state.positional, state.arguments_given = saved
        restore(shell.state, shell.frames.pop())


def _filtered(shell: Shell, pure: filters.Filter, words: Words) -> Status:
    """A pure filter over its input; unknown when it needs what only the machine has."""
    shell.budget.spend(1, len(shell.stdin or ""))
    mark = words[0].mark
    if all(word.is_known for word in words):
        stdin = shell.stdin
        greps = words[0].plain in ("grep", "egrep", "fgrep")
        if stdin is not None and not stdin.is_known and words[0].plain not in ("cat", "tee"):
            shell.why = set(shell.unknowns.names(stdin))
            shell.output.append(shell.unknowns.text(shell.why, mark))
            return None if greps else 0
        found = pure(words, stdin, lambda path: read_file(shell, path))
        if found is not None:
            if not (greps and any(re.fullmatch(r"-\w*q\w*", word.plain) for word in words)):
                shell.output.append(found)
            counts = any(re.fullmatch(r"-\w*c\w*", word.plain) for word in words[1:])
            return int(greps and found.plain in ("", "0\n" if counts else ""))
    names = {shell.unknowns.shown(word)[:60] for word in words[:1]} | set().union(
        *(shell.unknowns.names(word) for word in words)
    )
    shell.output.append(shell.unknowns.text(names, mark))
    return None


# builtins


def _echo(shell: Shell, words: Words) -> Status:
    arguments = words[1:]
    newline = True
    while arguments and re.fullmatch(r"-[neE]+", arguments[0].plain):
        newline = newline and "n" not in arguments[0].plain
        arguments = arguments[1:]
    text = Text.join(arguments, " ")
    shell.output.append(text + Text.of("\n", words[0].mark) if newline else text)
    return 0


def _printf(shell: Shell, words: Words) -> Status:
    if len(words) > 2 and words[1].plain == "-v":
        text = filters.printf(words[3:])
        shell.state.set(words[2].plain, text)
        return 0
    shell.output.append(filters.printf(words[1:]))
    return 0


def _exit(shell: Shell, words: Words) -> Status:
    raise Exit


def _return(shell: Shell, words: Words) -> Status:
    if len(words) < 2:
        raise Return(0)
    raise Return(int(words[1].plain) if words[1].plain.isdigit() else None)


def _break(shell: Shell, words: Words) -> Status:
    raise Break if words[0].plain == "break" else Continue


def _cd(shell: Shell, words: Words) -> Status:
    path = words[-1].plain if len(words) > 1 else "~"
    if all(word.is_known for word in words) and not path.startswith(("~", "-")):
        shell.state.cwd = os.path.normpath(os.path.join(shell.state.cwd, path))
    return 0


def _source(shell: Shell, words: Words) -> Status:
    """`source FILE`: evaluated in place when it is a plain file near the script."""
    if len(words) < 2:
        return 0
    path = words[1]
    found = shell.files.read(path.plain, shell.state.cwd) if path.is_known else None
    if found is None:
        name = shell.unknowns.shown(path)
        shell.problems.append(
            Problem(f"sourced file {name[:100]} is not here", path.mark.line, path.mark.file)
        )
        return None
    content = found[1] if isinstance(found[1], Text) else text_of_file(found[1], found[0])
    saved = (shell.state.positional, shell.state.arguments_given)
    if len(words) > 2:
        shell.state.positional, shell.state.arguments_given = words[2:], True
    try:
        return shell.run_text(content)
    except Return as returned:
        return returned.status
    finally:
        if len(words) > 2:
            shell.state.positional, shell.state.arguments_given = saved


def _eval(shell: Shell, words: Words) -> Status:
    return shell.run_text(Text.join(words[1:], " "))


def _exec(shell: Shell, words: Words) -> Status:
    if len(words) > 1:
        call(shell, words[1:], {})
        raise Exit
    return 0


def _shift(shell: Shell, words: Words) -> Status:
    count = int(words[1].plain) if len(words) > 1 and words[1].plain.isdigit() else 1
    shell.state.positional = shell.state.positional[count:]
    return 0


def _set(shell: Shell, words: Words) -> Status:
    for number, word in enumerate(words[1:], 1):
        if word.plain == "--":
            shell.state.positional, shell.state.arguments_given = words[number + 1 :], True
            break
        if word.plain in ("-a", "+a") or word.plain == "allexport":
            shell.state.export_all = word.plain != "+a"
    return 0


def _stripped(text: Text) -> Text:
    plain = text.plain
    start = len(plain) - len(plain.lstrip(" \t\n"))
    return text.slice(start, max(start, len(plain.rstrip(" \t\n"))))


def _read_builtin(shell: Shell, words: Words) -> Status:
    """`read A B C`: the first line of the input, split; `-a` fills an array; `-d ''` reads all of it."""
    names, array, separators = [], False, " \t\n"
    ifs = shell.state.scalar("IFS")
    separators = ifs.plain if ifs is not None and ifs.is_known and ifs.plain else separators
    skip, end = "", "\n"
    for word in words[1:]:
        plain = word.plain
        if skip:
            end = plain[:1] or "\0" if skip == "d" else end
            skip = ""
        elif plain.startswith("-"):
            array = array or "a" in plain
            skip = plain[-1] if plain[-1] in "pdntNui" else ""
        else:
            names.append(plain)
    line, newline, rest = (shell.stdin or Text()).partition(end)
    if shell.stdin is None or (not newline and not line.plain):
        return 1 if shell.stdin is not None else None
    shell.stdin = rest
    pieces = list(line.fields(separators))
    if array and names:
        shell.state.set(names[0], Array({str(n): piece for n, piece in enumerate(pieces)}))
        return 0
    if end != "\n" and len(names) == 1:
        shell.state.set(names[0], _stripped(line))
        return 0 if newline else 1
    for number, name in enumerate(names or ["REPLY"]):
        last = number == len(names) - 1
        value = (
            Text.join(pieces[number:], " ") if last else (pieces[number] if number < len(pieces) else Text())
        )
        shell.state.set(name, value)
    return 0


def _mapfile(shell: Shell, words: Words) -> Status:
    said = " ".join(word.plain for word in words[1:-1])
    names = [word.plain for word in words[-1:] if not word.plain.startswith("-")]
    end = re.search(r"-\w*d ?(.)", said)
    lines = list((shell.stdin or Text()).fields(end.group(1) if end else "\n"))
    shell.state.set(names[-1] if names else "MAPFILE", Array({str(n): line for n, line in enumerate(lines)}))
    return 0 if shell.stdin is not None else None


def _let(shell: Shell, words: Words) -> Status:
    value = None
    for word in words[1:]:
        value = shell.expander().number(word)
    return None if value is None else int(value == 0)


def _test(shell: Shell, words: Words) -> Status:
    inner = words[1:-1] if words[0].plain == "[" else words[1:]
    quoted = [Text.of("'", w.mark) + w + Text.of("'", w.mark) if "'" not in w.plain else w for w in inner]
    return shell.evaluate_test(Text.join(quoted, " "), double=False)


def _nothing(shell: Shell, words: Words) -> Status:
    return 1 if words[0].plain == "false" else 0


def _unclear(shell: Shell, words: Words) -> Status:
    """Commands whose success depends on the machine."""
    shell.output.append(shell.unknowns.text({words[0].plain}, words[0].mark))
    return None


def _command(shell: Shell, words: Words) -> Status:
    """`command X` runs X; `command -v X` asks whether it is there."""
    if len(words) > 1 and not words[1].plain.startswith("-"):
        return call(shell, words[1:], {})
    return _unclear(shell, words)


QUIET = frozenset(
    {":", "true", "false", "mkdir", "rm", "cp", "mv", "ln", "touch", "chmod", "chown", "sleep", "wait"}
    | {"ulimit", "trap", "module", "conda", "pip", "pip3", "popd", "pushd", "alias", "shopt", "umask"}
    | {"git", "wget", "curl", "hash", "kill", "pkill", "killall", "apt", "apt-get", "sync", "ldconfig"}
)
"""Commands that change nothing here; `false` is the one that fails."""
Builtin = Callable[["Shell", Words], "Status"]
BUILTINS: dict[str, Builtin] = {
    **dict.fromkeys(QUIET, _nothing),
    **dict.fromkeys(
        ("which", "type", "hostname", "nvidia-smi", "nproc", "date", "whoami", "uname"), _unclear
    ),
    "echo": _echo,
    "printf": _printf,
    "exit": _exit,
    "return": _return,
    "break": _break,
    "continue": _break,
    "cd": _cd,
    "source": _source,
    ".": _source,
    "eval": _eval,
    "exec": _exec,
    "shift": _shift,
    "set": _set,
    "read": _read_builtin,
    "mapfile": _mapfile,
    "readarray": _mapfile,
    "let": _let,
    "test": _test,
    "[": _test,
    "command": _command,
    "sed": editing.sed,
    "getopts": arguments.getopts,
    "envsubst": arguments.envsubst,
}
