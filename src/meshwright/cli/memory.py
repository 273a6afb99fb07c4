"""`oom`: what an out-of-memory error of a log says."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from meshwright.cli.options import CLUSTER, EXECUTION, JOB, LAYOUT, MODEL, ROLLOUT, JsonFlag, with_options
from meshwright.cli.speaking import Lang, is_plain, voice

WINDOW = 1_000_000
MOST_WINDOWS = 256
"""How much of the end of a log is searched for the error: 256 MB."""


def register(app: typer.Typer) -> None:
    """Add the commands of this module."""
    app.command()(oom)


@with_options(JOB, LAYOUT, EXECUTION, ROLLOUT, MODEL, CLUSTER)
def oom(
    log: Annotated[
        str, typer.Argument(help="log of the run, or - for standard input", show_default=False)
    ] = "-",
    model: Annotated[
        str, typer.Argument(help="the model that was trained, to price changes", show_default=False)
    ] = "",
    *,
    gpus: Annotated[str, typer.Option("--gpus", help="for example 256xH100", show_default=False)] = "",
    source: Annotated[str, typer.Option("--from", "--against", help="the JSON of the run's plan")] = "",
    lang: Lang = None,
    as_json: JsonFlag = False,
    said: dict[str, Any],
) -> None:
    """Why a run went out of memory, and what helps: where in the step, the cause, the remedies.

    With MODEL, --gpus and the layout of the run (or --from plan.json): what was predicted for the stage that
    failed, and every change that would help with its memory and step time.
    """
    import meshwright as mw
    from meshwright.cli.reading import read_answer, read_cluster, read_options
    from meshwright.cli.show import console
    from meshwright.report.out_of_memory import diagnosis_screen

    spoken = voice(lang)
    plan = None
    if source:
        plan = mw.estimate_again(read_answer(source))
    elif model:
        plan = mw.estimate(model, read_cluster(gpus, said), read_options(said))
    found = mw.diagnose(_read(log), plan)
    if as_json:
        typer.echo(json.dumps(spoken.data(found.as_dict()), indent=2, allow_nan=False))
        return
    screen = diagnosis_screen(found)
    if not is_plain(spoken):
        from meshwright.report.said import said as in_words

        screen = in_words(screen, spoken.say)
    console().print(screen)


def _read(log: str) -> str:
    """The part of a log that holds its last out-of-memory error; its end where there is none."""
    from meshwright.cost.oom import has_out_of_memory
    from meshwright.errors import QuestionError

    if log == "-":
        kept = text = ""
        while piece := sys.stdin.read(WINDOW):
            text = text[-WINDOW:] + piece
            kept = text if has_out_of_memory(text) else kept
        return kept or text
    path = Path(log)
    if not path.is_file():
        raise QuestionError(f"there is no file {log[:200]}")
    with path.open("rb") as file:
        end = file.seek(0, 2)
        for back in range(1, MOST_WINDOWS + 1):
            start = max(end - back * WINDOW, 0)
            file.seek(start)
            text = file.read(2 * WINDOW).decode("utf-8", errors="replace")  # overlaps the one before
            if has_out_of_memory(text) or start == 0:
                return text
    return text
