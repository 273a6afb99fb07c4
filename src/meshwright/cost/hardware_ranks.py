"""Collectives of the machine at hand, measured among child processes: one rank a GPU (or a few on a CPU)."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from meshwright.errors import QuestionError

if TYPE_CHECKING:
    from meshwright.cost.hardware import Plan

SECONDS = 300
"""Time after which ranks that do not finish are ended: a machine whose ranks cannot reach each other."""
TAIL = 300


def among(ranks: int, device: str, plan: Plan) -> list[dict[str, Any]]:
    """Rows of the collectives among `ranks` processes; QuestionError with their words where they fail."""
    with tempfile.TemporaryDirectory() as folder:
        where = Path(folder)
        (where / "plan.json").write_text(json.dumps(asdict(plan)), encoding="utf-8")
        words = [sys.executable, "-m", __name__, folder, str(ranks), device]
        started = [
            subprocess.Popen(
                [*words, str(rank)], env={**os.environ, "LOCAL_RANK": str(rank)},
                stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
            )
            for rank in range(ranks)
        ]  # fmt: skip
        try:
            said = [one.communicate(timeout=SECONDS)[1] for one in started]
        except subprocess.TimeoutExpired:
            raise QuestionError(
                f"{ranks} ranks did not finish their collectives in {SECONDS} s; --ranks 1 leaves them out"
            ) from None
        finally:
            for one in started:
                if one.poll() is None:
                    one.kill()
                    one.wait()
        failed = next((text for one, text in zip(started, said, strict=True) if one.returncode), None)
        if failed is not None:
            raise QuestionError(
                f"the collectives failed ({failed.strip()[-TAIL:] or 'no word'}); --ranks 1 leaves them out"
            )
        found: list[dict[str, Any]] = json.loads((where / "rows.json").read_text(encoding="utf-8"))
        return found


def _run(folder: Path, ranks: int, device: str, rank: int) -> None:
    """One rank: join, measure, and let the first write what it saw."""
    import torch

    from meshwright.cost.hardware import Plan, collectives

    data = json.loads((folder / "plan.json").read_text(encoding="utf-8"))
    plan = Plan(
        gemms=(), attention=(), elementwise=(), messages=tuple(data["messages"]), seconds=data["seconds"]
    )
    if device == "cuda":
        torch.cuda.set_device(rank)
    torch.distributed.init_process_group(  # type: ignore[no-untyped-call, unused-ignore]
        "nccl" if device == "cuda" else "gloo",
        init_method=f"file://{folder / 'meet'}",
        rank=rank,
        world_size=ranks,
    )
    rows = list(collectives(device, plan))
    if rank == 0:
        (folder / "rows.json").write_text(json.dumps(rows), encoding="utf-8")
    torch.distributed.destroy_process_group()  # type: ignore[no-untyped-call, unused-ignore]


if __name__ == "__main__":
    _run(Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3], int(sys.argv[4]))
