"""The command line: options in, one library call, one rendering, one exit status."""

from __future__ import annotations

import io
import os
import sys

import typer

from meshwright._version import __version__
from meshwright.cli import (
    agents,
    checking,
    comparing,
    guide,
    memory,
    planning,
    profiling,
    ranks,
    rules,
    serve,
    verifying,
    writing,
)
from meshwright.cli.speaking import voice_of
from meshwright.errors import MeshwrightError
from meshwright.lang import label

app = typer.Typer(
    name="meshwright",
    help="Plan, check and prove the parallel layout of large-model training on Megatron Core.",
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
for room in (
    planning,
    checking,
    comparing,
    guide,
    ranks,
    rules,
    writing,
    verifying,
    memory,
    profiling,
    serve,
    agents,
):
    room.register(app)


def _version(value: bool) -> None:
    if value:
        typer.echo(f"meshwright {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: bool = typer.Option(
        False, "--version", callback=_version, is_eager=True, help="print the version"
    ),
) -> None:
    """Plan, check and prove the parallel layout of large-model training on Megatron Core."""


INTERNAL = 70
"""Exit status of a fault of our own (EX_SOFTWARE)."""


def _tell(text: str) -> None:
    """An error in one line, in the language of the command."""
    say = voice_of(sys.argv[1:]).say
    typer.echo(f"{label(say, 'error:')}{say(text)}", err=True)


def main() -> None:
    """Entry point: errors meant for people become one line and their exit status."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # a terminal that cannot show a sign shows another
            stream.reconfigure(errors="replace")
    try:
        app()
    except SystemExit:
        if type(sys.stdout).__name__ == "PacifyFlushWrapper":  # the reader had seen enough
            sys.exit(0)
        raise
    except MeshwrightError as error:
        _tell(str(error))
        sys.exit(error.exit_status)
    except KeyboardInterrupt:
        sys.exit(130)
    except BrokenPipeError:
        sys.exit(0)
    except RecursionError:
        _tell("the input is nested too deeply")
        sys.exit(2)
    except OSError as error:
        _tell(f"{error.strerror or error}{f': {error.filename}' if error.filename else ''}")
        sys.exit(2)
    except Exception as error:
        if os.environ.get("MESHWRIGHT_DEBUG"):
            raise
        typer.echo(
            f"internal error: {type(error).__name__}: {error}\n"
            "This is a fault in Meshwright; MESHWRIGHT_DEBUG=1 shows where.",
            err=True,
        )
        sys.exit(INTERNAL)
