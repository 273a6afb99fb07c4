"""The options that commands share, as one table: flag spellings, field, type and help.

`with_options` gives a command function the options of the named groups and hands it what was said as
a dict, so that no command repeats the list.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any

import typer

from meshwright.facts import load_json


@dataclass(frozen=True, slots=True, kw_only=True)
class Flag:
    """One option: the name a command receives it under, its spellings, its type and its help."""

    name: str
    spellings: tuple[str, ...]
    kind: Any
    help: str
    group: str

    def parameter(self) -> inspect.Parameter:
        default = None
        option = typer.Option(default, *self.spellings, help=self.help, rich_help_panel=self.group)
        annotation: Any = self.kind | None
        return inspect.Parameter(
            self.name, inspect.Parameter.KEYWORD_ONLY, default=option, annotation=annotation
        )


KINDS: dict[str, Any] = {"text": str, "count": int, "number": float, "switch": bool, "list": list[str]}


def _group(name: str) -> tuple[Flag, ...]:
    """The options of one group of data/options.json."""
    row = load_json("meshwright.cli", "options.json")[name]
    return tuple(
        Flag(
            name=option["name"],
            spellings=tuple(option["spellings"].split()),
            kind=KINDS[option["kind"]],
            help=option["help"],
            group=row["title"],
        )
        for option in row["options"]
    )


LAYOUT, JOB, EXECUTION, MODEL, CLUSTER, BOUNDS, GOODPUT = map(
    _group, ("layout", "job", "execution", "model", "cluster", "bounds", "goodput")
)
ROLLOUT = _group("rollout")


def with_options(*groups: tuple[Flag, ...]) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Add the options of the groups to a command, which receives what was given as its dict `said`."""
    flags = [flag for group in groups for flag in group]

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        @functools.wraps(command)
        def run(**given: Any) -> None:
            said = {flag.name: given.pop(flag.name) for flag in flags}
            command(**given, said={name: value for name, value in said.items() if value not in (None, [])})

        own = [p for p in inspect.signature(command, eval_str=True).parameters.values() if p.name != "said"]
        positional = [p for p in own if p.kind is not inspect.Parameter.KEYWORD_ONLY]
        named = [p for p in own if p.kind is inspect.Parameter.KEYWORD_ONLY]
        extra = [flag.parameter() for flag in flags]
        signature = inspect.Signature([*positional, *extra, *named])
        run.__signature__ = signature  # type: ignore[attr-defined]
        run.__annotations__ = {p.name: p.annotation for p in signature.parameters.values()}
        return run

    return decorate


ModelName = Annotated[
    str, typer.Argument(help="catalog name, Hugging Face id, or path to a config.json", show_default=False)
]
JsonFlag = Annotated[bool, typer.Option("--json", help="print the answer as JSON")]
