"""What to change when a layout does not fit: single changes, each with its memory and its step time."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from meshwright.cost.memory import memory
from meshwright.cost.question import Question
from meshwright.cost.stages import all_stages
from meshwright.cost.steptime import step_time
from meshwright.errors import MeshwrightError
from meshwright.job.spec import Execution, Job, Recompute
from meshwright.layout.layout import Layout
from meshwright.layout.pipeline import PipelineLayout, default_pipeline
from meshwright.layout.rules import legal_mask
from meshwright.planner.again import one_row


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """A layout with its flags, and the job they run."""

    job: Job
    layout: Layout
    execution: Execution
    pipeline: PipelineLayout | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Remedy:
    """One change, or several together.

    options   what changes, as command-line options and values
    why       what it does to memory, in words
    numerics  it changes the results of training too
    setting   the setting with the change
    peak      bytes of the fullest stage; saved: how much less that is than before
    verdict   fits | tight | does-not-fit
    slower    step time over the step time before, less 1
    """

    options: tuple[tuple[str, str], ...]
    why: str
    numerics: bool
    setting: Setting
    peak: float
    saved: float
    verdict: str
    slower: float


Change = tuple[dict[str, str], str, bool, Setting]
"""Options, why, numerics, the changed setting."""


def remedies(question: Question, setting: Setting, *, most: int = 12) -> tuple[Remedy, ...]:
    """Changes that lower the peak of a setting, ranked: those that fit first, the cheapest in time first.

    Where no single change fits, the first remedy is the cheapest chain of changes that does, if there is one.
    """
    before = _price(question, setting)
    if before is None:
        return ()
    single = [r for c in changes(question, setting) if (r := _remedy(question, c, before)) and r.saved > 0]
    ranked = sorted(
        single, key=lambda r: (_ORDER[r.verdict], r.numerics, r.slower if r.verdict == "fits" else r.peak)
    )
    if not any(r.verdict == "fits" for r in ranked):
        chain = _chain(question, setting, before)
        ranked = [chain, *ranked] if chain is not None else ranked
    return tuple(ranked[:most])


_ORDER = {"fits": 0, "tight": 1, "does-not-fit": 2}


def _chain(question: Question, setting: Setting, before: tuple[float, float, str]) -> Remedy | None:
    """Change after change, each the one that saves most for its time, until the setting fits."""
    options: dict[str, str] = {}
    reached, numerics = before, False
    for _ in range(4):
        found = [
            r
            for c in changes(question, setting)
            if not c[2] and (r := _remedy(question, c, reached)) and r.saved > 0
        ]
        if not found:
            return None
        best = max(found, key=lambda r: r.saved / (reached[0] * max(r.slower, 0.01)))
        options |= dict(best.options)
        setting, reached = best.setting, (best.peak, reached[1] * (1 + best.slower), best.verdict)
        if best.verdict == "fits":
            return Remedy(
                options=tuple(options.items()), why="together", numerics=numerics, setting=setting,
                peak=best.peak, saved=before[0] - best.peak, verdict=best.verdict,
                slower=reached[1] / before[1] - 1,
            )  # fmt: skip
    return None


def _price(question: Question, setting: Setting) -> tuple[float, float, str] | None:
    """Peak [bytes], step [s] and verdict of a setting; None where it cannot start."""
    asked = replace(question, job=setting.job)
    try:
        setting.layout.check_world(question.cluster.world)
        setting.layout.num_microbatches(question.cluster.world, setting.job.global_batch)
        table = one_row(asked, setting.layout, setting.execution, setting.pipeline)
        legal, _ = legal_mask(asked.model, asked.cluster, asked.job, table, asked.stack)
    except MeshwrightError:
        return None
    if not legal[0]:
        return None
    view = all_stages(table.splits)
    used = memory(asked, table, view)
    return float(used.peak[0]), float(step_time(asked, table, view).step[0]), str(used.verdicts()[0])


def _remedy(question: Question, change: Change, before: tuple[float, float, str]) -> Remedy | None:
    options, why, numerics, setting = change
    after = _price(question, setting)
    if after is None:
        return None
    return Remedy(
        options=tuple(options.items()), why=why, numerics=numerics, setting=setting, peak=after[0],
        saved=before[0] - after[0], verdict=after[2], slower=after[1] / before[1] - 1,
    )  # fmt: skip


def changes(question: Question, setting: Setting) -> Iterator[Change]:
    """Every change that could lower the peak of a setting, whether or not it is legal there."""
    yield from _flag_changes(question, setting)
    yield from _layout_changes(question, setting)
    job = setting.job
    if job.grad_dtype == "fp32":
        changed = replace(setting, job=replace(job, grad_dtype="bf16"))
        yield {"--grad-dtype": "bf16"}, "gradient buffers of 2 bytes a parameter", True, changed
    if job.optimizer == "adam":
        changed = replace(setting, job=replace(job, optimizer="adam-precision-aware"))
        yield {"--optimizer": "adam-precision-aware"}, "moments of 2 bytes a parameter", True, changed


def _flag_changes(question: Question, setting: Setting) -> Iterator[Change]:
    flags = setting.execution

    def with_flags(**new: object) -> Setting:
        return replace(setting, execution=replace(flags, **new))  # type: ignore[arg-type]

    layers = question.model.num_layers // (setting.layout.pp * setting.layout.vpp)
    for recompute, words in _recomputes(question, flags.recompute, layers):
        options: dict[str, str] = {"--recompute": recompute.granularity}
        if recompute.modules:
            options["--recompute-modules"] = ",".join(recompute.modules)
        if recompute.method == "block":
            options["--recompute-method"] = "block"
            options["--recompute-num-layers"] = str(recompute.num_layers)
        yield options, words, False, with_flags(recompute=recompute)
    if not flags.cross_entropy_fusion or flags.cross_entropy_impl != "te":
        changed = with_flags(cross_entropy_fusion=True, cross_entropy_impl="te")
        yield (
            {"--cross-entropy-fusion": "", "--cross-entropy-impl": "te"},
            "logits are kept in bf16 and once",
            False,
            changed,
        )
    if flags.attention_backend == "unfused":
        yield (
            {"--attention-backend": "auto"},
            "no attention scores are kept",
            False,
            with_flags(attention_backend="auto"),
        )
    if not flags.distributed_optimizer and not flags.fsdp:
        changed = with_flags(distributed_optimizer=True)
        yield (
            {"--distributed-optimizer": ""},
            "optimizer state is shared over data parallel ranks",
            False,
            changed,
        )
    for share in (0.5, 1.0):
        if flags.optimizer_offload < share:
            changed = with_flags(optimizer_offload=share)
            yield {"--offload": f"{share:g}"}, "moments go to host memory", False, changed
    if not flags.fsdp:
        changed = with_flags(fsdp=True)
        yield (
            {"--fsdp": ""},
            "weights, gradients and optimizer state are shared over data parallel ranks",
            False,
            changed,
        )
    if not flags.expandable_segments:
        yield {"--expandable-segments": ""}, "less fragmentation", False, with_flags(expandable_segments=True)
    if flags.cuda_graphs != "none":
        changed = with_flags(cuda_graphs="none")
        yield {"--cuda-graphs": "none"}, "nothing is kept in the memory of graphs", False, changed
    if not flags.cpu_offload_layers and flags.recompute.granularity == "none":
        half = max(question.model.num_layers // 2, 1)
        changed = with_flags(cpu_offload_layers=half)
        words = "activations of half the layers go to host memory"
        yield {"--cpu-offload-layers": f"{half}"}, words, False, changed
    if question.model.is_moe and not flags.offload_modules:
        changed = with_flags(offload_modules=("expert_fc1", "moe_act"))
        yield (
            {"--offload-modules": "expert_fc1,moe_act"},
            "the experts' activations go to host memory",
            False,
            changed,
        )


def _recomputes(question: Question, now: Recompute, layers: int) -> Iterator[tuple[Recompute, str]]:
    """Heavier recompute sets than the present one; `layers` are those of a model chunk."""
    if now.granularity == "full":
        return
    light = ("layernorm", "moe_act") if question.model.is_moe else ("layernorm",)
    heavy = ("layernorm", "moe") if question.model.is_moe else ("layernorm", "mlp")
    for modules in (light, heavy):
        added = tuple(dict.fromkeys((*now.modules, *modules)))
        if set(added) > set(now.modules):
            words = f"{' and '.join(modules)} are computed again in the backward pass"
            yield Recompute(granularity="selective", modules=added), words
    for part in sorted({layers // 4, layers // 2} - {0}):
        words = f"of {part} of the {layers} layers of a chunk only the input is kept"
        yield Recompute(granularity="full", method="block", num_layers=part), words
    yield Recompute(granularity="full", num_layers=1), "only the input of each layer is kept"


def _layout_changes(question: Question, setting: Setting) -> Iterator[Change]:
    layout, model = setting.layout, question.model

    def with_degrees(**new: int) -> Setting:
        changed = replace(layout, **new)  # type: ignore[arg-type]
        changed = replace(changed, sp=changed.tp > 1)
        same = setting.pipeline is not None and (changed.pp, changed.vpp) == (layout.pp, layout.vpp)
        pipeline = setting.pipeline if same else default_pipeline(model, changed.pp, changed.vpp)
        return replace(setting, layout=changed, pipeline=pipeline)

    if layout.mbs > 1:
        yield (
            {"--mbs": f"{layout.mbs // 2}"},
            "half the activations of a micro-batch",
            False,
            with_degrees(mbs=layout.mbs // 2),
        )
    if layout.vpp > 1:
        yield {"--vpp": "1"}, "fewer micro-batches in flight", False, with_degrees(vpp=1)
    doubled = {
        "tp": "weights and activations of a layer are split further",
        "pp": "a stage holds fewer layers",
        "cp": "a rank holds less of the sequence",
    }
    if model.is_moe:
        doubled["ep"] = "a rank holds fewer experts"
    for name, why in doubled.items():
        value = 2 * getattr(layout, name)
        yield {f"--{name}": f"{value}"}, why, False, with_degrees(**{name: value})
