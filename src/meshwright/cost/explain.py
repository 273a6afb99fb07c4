"""Where a step's time goes, what limits it, and what would make it shorter."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from meshwright.cost.question import Question
from meshwright.cost.stages import all_stages
from meshwright.cost.steptime import TimeTable, step_time
from meshwright.job.spec import Execution, OverlapKind, Recompute, Stack
from meshwright.job.stacks import default_execution, releases
from meshwright.layout.layout import Layout
from meshwright.layout.table import LayoutTable

GROUPS = {
    "compute": ("gemm", "attention", "memory_bound"),
    "recompute": ("recompute",),
    "communication": ("tp", "cp", "ep", "pp", "dp"),
    "pipeline": ("bubble", "imbalance"),
    "host": ("host", "offload"),
    "rest": ("optimizer", "fixed"),
}
"""Terms of a step, gathered."""
NOTICEABLE = 0.002
"""Share of the step below which a gain is not worth a word."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Share:
    """One term or group of terms: its seconds a step and its share of it."""

    name: str
    seconds: float
    share: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Gain:
    """What a change would save: seconds a step, and the share of it.

    kind  limit: what is left if a cost vanished, out of reach but a bound
    """

    change: str
    kind: str
    seconds: float
    share: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """terms, groups and gains are sorted, largest first."""

    step_seconds: float
    groups: tuple[Share, ...]
    terms: tuple[Share, ...]
    limited_by: str
    gains: tuple[Gain, ...]


def explain(question: Question, table: LayoutTable, timed: TimeTable | None = None) -> Explanation:
    """The explanation of the one row of a table; pass the times that are shown, where they are at hand."""
    timed = timed or step_time(question, table, all_stages(table.splits))
    step = float(timed.step[0])
    seconds = {name: float(values[0]) for name, values in timed.terms.items()}
    groups = _shares({group: sum(seconds[name] for name in names) for group, names in GROUPS.items()}, step)
    return Explanation(
        step_seconds=step,
        groups=groups,
        terms=_shares(seconds, step),
        limited_by=groups[0].name,
        gains=tuple(_limits(seconds, step)),
    )


def _shares(seconds: dict[str, float], step: float) -> tuple[Share, ...]:
    found = [Share(name=name, seconds=value, share=value / step) for name, value in seconds.items()]
    return tuple(sorted(found, key=lambda share: -share.seconds))


def _limits(seconds: dict[str, float], step: float) -> list[Gain]:
    """What would be saved if each cost vanished, where that is worth a word."""
    found = [
        Gain(change=words, kind="limit", seconds=seconds[term], share=seconds[term] / step)
        for term, words in LIMITS.items()
    ]
    return sorted((gain for gain in found if gain.share > NOTICEABLE), key=lambda gain: -gain.seconds)


LIMITS = {
    "bubble": "no pipeline bubble (more micro-batches, interleaving, fewer stages)",
    "imbalance": "equal pipeline stages (another pipeline layout)",
    "ep": "no exposed expert exchange",
    "tp": "no exposed tensor-parallel traffic",
    "cp": "no exposed context-parallel traffic",
    "dp": "no exposed gradient and weight traffic",
    "host": "no waiting for kernel launches",
    "offload": "no exposed offload of activations",
    "memory_bound": "all elementwise kernels fused away",
    "recompute": "nothing recomputed (more memory)",
}


def other_flags(question: Question, layout: Layout, e: Execution) -> Iterator[tuple[str, str, Execution]]:
    """Flags that are off and could be on for a layout: in words, as an option, and the flags with it.

    Whether the rules allow them together, and whether memory does, is for the caller to ask.
    """
    moe = question.model.is_moe

    def overlapping(kind: OverlapKind) -> tuple[str, Execution]:
        overlaps = e.overlaps | {kind}
        return f"--overlap {','.join(sorted(overlaps))}", replace(e, overlaps=overlaps)

    if layout.tp > 1 and "tp" not in e.overlaps:
        yield "overlap tensor-parallel traffic (user buffers)", *overlapping("tp")
    if "dp" not in e.overlaps:
        yield "overlap gradient reduction and parameter gather", *overlapping("dp")
    if moe and layout.ep > 1 and "ep" not in e.overlaps:
        yield "overlap the expert exchange with compute", *overlapping("ep")
    if moe and layout.ep > 1 and e.dispatcher in ("allgather", "alltoall"):
        for name, words in (("hybridep", "HybridEP"), ("deepep", "DeepEP")):
            yield f"dispatch with {words}", f"--dispatcher {name}", replace(e, dispatcher=name)  # type: ignore[arg-type]
    cluster, job = question.cluster, question.job
    latest = default_execution(Stack(release=releases()[-1]), cluster.gpu, moe, job.precision)
    if latest.grouped_mlp_fusion and not e.grouped_mlp_fusion:  # where published settings fuse at all
        yield "fuse the experts' MLP", "", replace(e, grouped_mlp_fusion=True)
    if e.cuda_graphs != "full":
        yield (
            "CUDA graph of the whole iteration",
            "--cuda-graphs full",
            replace(e, cuda_graphs="full"),
        )
    if moe and e.cuda_graphs in ("none", "attn", "router"):
        yield "CUDA graphs of attention and router", "--cuda-graphs moe", replace(e, cuda_graphs="moe")
    if e.recompute.granularity != "none":
        yield "no recompute (more memory)", "--recompute none", replace(e, recompute=Recompute())
    if e.recompute.granularity == "full":
        lighter = Recompute(granularity="selective", modules=("core_attn",))
        yield (
            "selective recompute instead of full",
            "--recompute selective --recompute-modules core_attn",
            replace(e, recompute=lighter),
        )


def training_days(
    step_seconds: float, tokens_per_step: int, world: int, tokens: float
) -> tuple[float, float]:
    """Days, and GPU-hours, that a token budget takes without interruptions.

    >>> training_days(10.0, 1_000_000, 8, 864e6)
    (0.1, 19.2)
    """
    seconds = tokens / tokens_per_step * step_seconds
    return seconds / 86_400, seconds * world / 3_600
