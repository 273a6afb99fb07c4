"""`html_report`, `sizes_around`: a plan with everything around it, for one file and for scaling curves."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from meshwright.api.asking import Options
from meshwright.api.picturing import report
from meshwright.api.planning import plan
from meshwright.api.writing import write
from meshwright.cluster.parse import build_cluster
from meshwright.cluster.spec import Cluster
from meshwright.errors import MeshwrightError
from meshwright.lang import DEFAULT, html_language, speaker
from meshwright.lang.markup import page_in
from meshwright.model.spec import Model
from meshwright.planner.answer import Estimate, Plans
from meshwright.report.html import Written

FRAMEWORKS = ("megatron-lm", "megatron-bridge")
"""Languages in which a report writes its plan."""
SCALES = (0.25, 0.5, 1.0, 2.0, 4.0)
"""Numbers of GPUs around a given one, as multiples of it."""


def html_report(
    answer: Plans | Estimate, options: Options | None = None, *, frameworks: Sequence[str] = FRAMEWORKS,
    scale: bool = True, language: str = "en",
) -> str:  # fmt: skip
    """One HTML file: the answer, its pictures and configs; with `scale` the curve over more and fewer GPUs.

    options   what was asked, so that the other numbers of GPUs are asked the same
    language  of the page: en or zh
    """
    best = answer.best if isinstance(answer, Plans) else answer
    written: list[Written] = []
    sizes: tuple[Estimate, ...] = ()
    if best is not None and best.fits:
        for name in frameworks:
            written += [
                Written(title=f"{name}: {file}", text=text) for file, text in write(best, name).items()
            ]
        if scale:
            job = best.question.job
            held = replace(options or Options(), global_batch=job.global_batch, seq_length=job.seq_length)
            sizes = sizes_around(best.question.model, best.question.cluster, held)
    page = report(answer, written=written, sizes=sizes)
    return page_in(page, speaker(language), html_language(language)) if language != DEFAULT else page


def sizes_around(model: str | Model, cluster: Cluster, options: Options) -> tuple[Estimate, ...]:
    """The best layout on a quarter to four times as many GPUs, the global batch held; those that fit."""
    if options.global_batch is None:
        first = plan(model, cluster, options, top=1).best
        if first is not None:
            options = replace(options, global_batch=first.question.job.global_batch)
    found = (size_at(model, cluster, options, scale) for scale in SCALES)
    return tuple(one for one in found if one is not None and one.fits)


def size_at(model: str | Model, cluster: Cluster, options: Options, scale: float) -> Estimate | None:
    """The best layout on `scale` times as many GPUs; None where that is no cluster or has no legal layout."""
    world = int(cluster.world * scale)
    per_node = min(cluster.gpus_per_node, world)
    if world < 1 or world % per_node:
        return None
    try:
        size = build_cluster(cluster.gpu, world, per_node, None, cluster.network * 8 / 1e9)
        return plan(model, size, options, top=1).best
    except MeshwrightError:  # this number of GPUs makes no cluster, or the constraints do not suit it
        return None
