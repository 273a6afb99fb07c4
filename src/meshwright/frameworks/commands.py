"""A command that would start, ready for an adapter: its program, its words, its launchers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from meshwright.frameworks import launchers
from meshwright.frameworks.reading import Source, Unknown, Value
from meshwright.frameworks.shell.text import Mark, Text, Unknowns
from meshwright.frameworks.spelling import plain_value, typed

MACHINE = ("nvidia-smi", "nproc", "scontrol", "rocm-smi")
"""Programs that launch scripts ask for the number of GPUs or nodes."""


@dataclass(frozen=True)
class Command:
    """One training program with everything around it.

    program      path of the script, or the module's name
    arguments    words after the program
    layers       launchers from the outside in, with the words their option values come from
    environment  exported variables as marked text
    directives   options of the #SBATCH lines
    read_file    content of a file beside the script (text, name to show), None when there is none
    """

    program: str
    arguments: tuple[Text, ...]
    unknowns: Unknowns
    module: bool = False
    layers: tuple[tuple[launchers.Peeled, tuple[Text, ...]], ...] = ()
    environment: Mapping[str, Text] = field(default_factory=dict)
    directives: Mapping[str, Text] = field(default_factory=dict)
    read_file: Callable[[str], tuple[str, Text] | None] = field(default=lambda path: None)
    label: str = ""
    maybe: bool = False

    @property
    def words(self) -> list[str]:
        return [word.plain for word in self.arguments]

    def option(self, layer: int, *names: str) -> Text | None:
        """Marked value of a launcher's option."""
        peeled, words = self.layers[layer]
        for name in names:
            if (found := peeled.options.get(name)) is not None:
                index, value = found
                word = words[index]
                return word.slice(len(word) - len(value), len(word)) if value else Text()
        return None


def source_of(mark: Mark) -> Source:
    """A mark as the source of a value."""
    name = f"${mark.name}" if mark.kind == "argument" else mark.name
    return Source(kind=mark.kind, file=mark.file, line=mark.line or None, name=name)


def supply(names: Sequence[str], called: Mapping[str, str] | None = None) -> str:
    """How a person supplies inputs by these names; `called` says what a script calls its arguments."""
    said = []
    for name in names:
        if name.startswith("$") and name[1:].isdigit():
            meaning = (called or {}).get(name)
            said.append(f"--arg {name[1:]}=VALUE" + (f" ({meaning})" if meaning else ""))
        elif name.replace("_", "").isalnum() and name.upper() == name:
            said.append(f"--env {name}=VALUE")
        elif name in MACHINE:
            said.append("--gpus N")
    other = [
        name for name in names if not name.startswith("$") and name.upper() != name and name not in MACHINE
    ]
    return (
        "give " + ", ".join(said)
        if said
        else f"it depends on {', '.join(other) or 'what only the run knows'}"
    )


def unknown_of(option: str, text: Text, unknowns: Unknowns) -> Unknown:
    names = tuple(sorted(unknowns.names(text)))
    how = supply(names, unknowns.argument_names)
    return Unknown(option=option, needs=names, how=how, line=text.mark.line or None)


def value_of(option: str, text: Text, unknowns: Unknowns, kind: str | None = None) -> Value | Unknown:
    """A marked word as a value, or as an unknown when part of it is open."""
    if not text.is_known:
        if kind == "str":
            return Value(unknowns.shown(text), source_of(text.mark))
        return unknown_of(option, text, unknowns)
    plain = typed(text.plain, kind) if kind else plain_value(text.plain)
    return Value(plain, source_of(text.mark))
