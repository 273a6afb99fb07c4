"""How far a question lies outside what was measured: a GPU without tables, more GPUs than any fitted run."""

from __future__ import annotations

import math

from meshwright.cost.kernels import measured_relative
from meshwright.cost.question import Question
from meshwright.facts import load_json


def relative_of(question: Question) -> str:
    """The measured GPU whose kernel constants this one takes; "" where it was measured itself."""
    gpu = question.cluster.gpu
    relative, own = measured_relative(gpu)
    return "" if own or gpu.name in question.measured else relative


def beyond_measured(question: Question) -> float:
    """What more GPUs than those of the largest fitted run add to the relative half width of the band."""
    beyond = load_json("meshwright.cost", "kernels.json")["beyond"]
    doublings = math.log2(max(question.cluster.world / beyond["from_gpus"], 1.0))
    return float(beyond["band_per_doubling"] * doublings)


def doubts(question: Question) -> tuple[tuple[str, str, str], ...]:
    """(what was taken for granted, its value, why that is less sure than usual)."""
    said = []
    gpu, relative = question.cluster.gpu, relative_of(question)
    if relative:
        said.append(("kernels", relative, f"{gpu.name} has no measured tables; the band is wider"))
    if beyond_measured(question):
        most = load_json("meshwright.cost", "kernels.json")["beyond"]["from_gpus"]
        why = f"wider beyond {most:,} GPUs, those of the largest run that the constants are fitted to"
        said.append(("band", f"+{beyond_measured(question):.1%}", why))
    return tuple(said)
