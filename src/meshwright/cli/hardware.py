"""`calibrate hardware`: the machine at hand as a GPU file."""

from __future__ import annotations

import json

import typer


def calibrate_machine(out: str, device: str, kind: str, ranks: int | None, as_json: bool) -> None:
    """Measure, write the file, show what was reached."""
    from meshwright.api.hardware import calibrate_hardware

    found = calibrate_hardware(out, device=device, kind=kind, ranks=ranks)
    if as_json:
        typer.echo(json.dumps(found.as_dict(), indent=2))
        return
    from meshwright.cli.show import console
    from meshwright.report.hardware import hardware_screen

    console().print(hardware_screen(found.content, str(found.path)))
