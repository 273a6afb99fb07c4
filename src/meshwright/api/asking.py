"""From what a person says to a question: options, what is filled in, and the axes of the search."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from meshwright.cluster.parse import parse_cluster
from meshwright.cluster.spec import Cluster
from meshwright.cost.evidence import doubts
from meshwright.cost.precision import recipe_for
from meshwright.cost.question import Question
from meshwright.cost.rl import engine_gpus
from meshwright.errors import QuestionError
from meshwright.job.defaults import Assumption, default_job
from meshwright.job.lengths import read_sequence_lengths, token_shares
from meshwright.job.precedents import Recipe, precedents
from meshwright.job.spec import (
    Execution,
    Framework,
    GradDtype,
    Job,
    Optimizer,
    Precision,
    Recompute,
    Rollout,
    Stack,
    Task,
    positive,
)
from meshwright.job.stacks import default_execution, execution_source
from meshwright.layout.layout import DEGREES
from meshwright.layout.pipeline import PipelineLayout
from meshwright.model.change import reaching
from meshwright.model.load import load_model
from meshwright.model.spec import Model
from meshwright.planner.space import Axes, Range, free_flags
from meshwright.verify.profile.learned import calibration_for, load_learned


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """What a person may say about a training, beside model and GPUs; None lets Meshwright choose.

    Degrees may be one value or several (`tp=(1, 2, 4)`). `model_changes` overrides fields of the model.
    """

    seq_length: int | None = None
    global_batch: int | None = None
    precision: Precision = "bf16"
    optimizer: Optimizer = "adam"
    grad_dtype: GradDtype = "fp32"
    task: Task = "pretrain"
    stack: str = "26.06"
    framework: Framework = "megatron-bridge"
    framework_version: str | None = None
    tp: int | tuple[int, ...] | None = None
    pp: int | tuple[int, ...] | None = None
    vpp: int | tuple[int, ...] | None = None
    cp: int | tuple[int, ...] | None = None
    ep: int | tuple[int, ...] | None = None
    etp: int | tuple[int, ...] | None = None
    mbs: int | tuple[int, ...] | None = None
    free: tuple[str, ...] = ()
    """Further execution flags that the search varies: dispatcher, overlaps, ..., or all."""
    bounds: Mapping[str, Range] = field(default_factory=dict)
    """{degree: range} for degrees that are left to the search."""
    sp: bool | None = None
    pipeline_layout: str | None = None
    first_stage_layers: int | None = None
    last_stage_layers: int | None = None
    account_for_embedding: bool = False
    account_for_loss: bool = False
    recompute: Recompute | None = None
    execution: Mapping[str, Any] = field(default_factory=dict)
    """Fields of `Execution` that are given; the others are what the stack uses on that GPU."""
    model_changes: Mapping[str, object] = field(default_factory=dict)
    rollout: Mapping[str, Any] = field(default_factory=dict)
    """Fields of `Rollout` that are given, for the task `rl`."""
    longest_packed_sequence: int | None = None
    """Tokens of the longest packed sequence: memory is priced at it, time at `seq_length`."""
    sequence_lengths: str | tuple[tuple[int, float], ...] = ()
    """Lengths of packed samples: words ("2048:0.5,8192:0.5", or a file), or pairs (tokens, samples)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """A question with everything filled in, and what was filled in."""

    question: Question
    execution: Execution
    assumptions: tuple[Assumption, ...]


def ask(model: str | Model, gpus: str | Cluster, options: Options) -> Asked:
    """Turn words into a question; raises QuestionError where they make no sense."""
    described = load_model(model, options.model_changes) if isinstance(model, str) else model
    if not isinstance(gpus, str | Cluster):
        raise QuestionError("say which GPUs, for example 64xH100")
    cluster = parse_cluster(gpus) if isinstance(gpus, str) else gpus
    for what, value in (("sequence length", options.seq_length), ("global batch size", options.global_batch)):
        if value is not None:
            positive(what, value)
    job, assumed = default_job(
        names_of(described), cluster.gpu, cluster.world,
        task=options.task, precision=options.precision, max_position=described.max_position,
        seq_length=options.seq_length, global_batch=options.global_batch,
    )  # fmt: skip
    job = replace(
        job, optimizer=options.optimizer, grad_dtype=options.grad_dtype,
        longest_packed_sequence=options.longest_packed_sequence, packing=_packing(options),
    )  # fmt: skip
    described, raised = _reaching(described, job.seq_length, options)
    recipe_for(job.precision, cluster.gpu)  # refuses what the tensor cores cannot
    job, rolled = _with_rollout(job, described, cluster, options)
    stack = Stack(
        release=options.stack, framework=options.framework, framework_version=options.framework_version
    )
    execution = default_execution(stack, cluster.gpu, described.is_moe, job.precision)
    source = execution_source(stack, cluster.gpu, described.is_moe, job.precision)
    flags = _flags(execution, described, options, source)
    single: dict[str, Any] = {
        name: value for name, value in options.execution.items() if not _several(name, value)
    }
    execution = replace(execution, **single)
    learned = load_learned(cluster.gpu.name)
    question = Question(
        model=described, cluster=cluster, job=job, stack=stack, calibration=calibration_for(cluster.gpu.name)
    )
    if learned is not None:
        note = Assumption(
            option="calibration", value=question.calibration.source, source="meshwright calibrate"
        )
        assumed = (*assumed, note)
    packed = (PACKED,) if packs(options) else ()
    unsure = tuple(Assumption(option=what, value=value, source=why) for what, value, why in doubts(question))
    assumed = (*assumed, *raised, *rolled, *packed, *flags, *unsure)
    return Asked(question=question, execution=execution, assumptions=assumed)


def _reaching(model: Model, tokens: int, options: Options) -> tuple[Model, tuple[Assumption, ...]]:
    """The model with positions for the sequence, unless somebody said how many it has; and that it was so."""
    if "max_position" in options.model_changes or (longer := reaching(model, tokens)) is model:
        return model, ()
    return longer, (longer_positions(model, tokens),)


def longer_positions(model: Model, tokens: int) -> Assumption:
    """That a model was given positions for `tokens`, more than it says it has."""
    why = f"the model says {model.max_position:,}; rotary positions reach as far as is asked"
    return Assumption(option="--max-position", value=str(tokens), source=why)


def _with_rollout(
    job: Job, model: Model, cluster: Cluster, options: Options
) -> tuple[Job, tuple[Assumption, ...]]:
    """The job of the task `rl` with its rollout engine, and what of that was filled in."""
    if options.task != "rl" and not options.rollout:
        return job, ()
    given = replace(Rollout(), **options.rollout)
    if "gpus" not in options.rollout:
        given = replace(given, gpus=engine_gpus(model, cluster, given.memory_share))
    why = {
        "gpus": "the fewest GPUs (a power of two) that hold the weights and leave room for the cache",
        "memory_share": "what rollout engines are usually given beside a trainer",
    }
    spelt = {"gpus": "--rollout-gpus", "memory_share": "--rollout-memory"}
    told = tuple(
        Assumption(option=spelt[name], value=getattr(given, name), source=source)
        for name, source in why.items()
        if name not in options.rollout
    )
    of_trainer = Assumption(option="step time", value="the trainer's", source="generation is not predicted")
    return replace(job, rollout=given), (*told, of_trainer)


def _packing(options: Options) -> tuple[tuple[int, float], ...]:
    """Shares of tokens by the length of the samples they are in."""
    given = options.sequence_lengths
    if not given:
        return ()
    return read_sequence_lengths(given) if isinstance(given, str) else token_shares(given)


def _flags(execution: Execution, model: Model, options: Options, source: str) -> tuple[Assumption, ...]:
    """Execution flags that nobody gave."""
    shown = {"cuda_graphs": execution.cuda_graphs, "overlaps": ",".join(sorted(execution.overlaps)) or "none"}
    if model.is_moe:
        shown["dispatcher"] = execution.dispatcher
    return tuple(
        Assumption(option="--" + name.replace("_", "-"), value=value, source=source)
        for name, value in shown.items()
        if name not in options.execution
    )


def axes_of(asked: Asked, options: Options, *, fixed: bool) -> Axes:
    """The axes of a search; with `fixed`, degrees that were not named are 1 (ETP is TP where EP is 1)."""
    model = asked.question.model
    unnamed = (1,) if fixed else None
    given: dict[str, Any] = {name: _values(getattr(options, name), unnamed) for name in DEGREES}
    if fixed and options.etp is None and model.is_moe and given["ep"] == (1,):
        given["etp"] = given["tp"]
    if packs(options):
        given["mbs"] = (1,)
    pipeline = None
    if (
        options.pipeline_layout is not None
        or options.first_stage_layers is not None
        or options.last_stage_layers is not None
    ):
        pipeline = _pipeline(model, options, given)
        given["pp"], given["vpp"] = (pipeline.pp,), (pipeline.vpp,)
    return Axes(
        **given, bounds=options.bounds, sp=options.sp,
        execution=asked.execution, flags=_free_flags(asked, options),
        recompute=None if options.recompute is None else (options.recompute,), pipeline=pipeline,
        splits="default" if fixed else "both",
    )  # fmt: skip


def packs(options: Options) -> bool:
    """Whether fine-tuning is taken to pack its samples, which leaves a micro-batch of one pack."""
    tuned = options.task in ("sft", "lora") and options.framework == "megatron-bridge"
    return tuned and options.mbs is None and "mbs" not in options.bounds


PACKED = Assumption(
    option="--mbs",
    value=1,
    source="Megatron Bridge's fine-tuning recipes pack their samples, and a pack is a batch already (rule "
    "offline-packing-mbs); --mbs 1,2,4 searches others",
)


def _free_flags(asked: Asked, options: Options) -> dict[str, tuple[object, ...]]:
    """Execution flags that the search varies: those given as a list, and those of the space nobody gave."""
    base = asked.execution
    # older releases refuse Muon with the distributed optimizer
    more = ("distributed_optimizer",) if asked.question.job.optimizer == "muon" else ()
    free: dict[str, tuple[object, ...]] = {
        name: tuple(dict.fromkeys((getattr(base, name), *values)))
        for name, values in free_flags(base, (*options.free, *more)).items()
        if name not in options.execution
    }
    return free | {name: value for name, value in options.execution.items() if _several(name, value)}


def _several(name: str, value: object) -> bool:
    """Whether a flag was given as a list of values to choose from (some flags are lists themselves)."""
    return isinstance(value, tuple) and name != "offload_modules"


def _values(given: int | tuple[int, ...] | None, unnamed: tuple[int, ...] | None) -> tuple[int, ...] | None:
    if given is None:
        return unnamed
    return (given,) if isinstance(given, int) else tuple(given)


def _pipeline(model: Model, options: Options, given: Mapping[str, tuple[int, ...] | None]) -> PipelineLayout:
    """The pipeline layout that a person wrote; pp must be given beside it."""
    pp, vpp = given["pp"], given["vpp"] or (1,)
    if pp is None or len(pp) != 1 or len(vpp) != 1:
        raise QuestionError("a pipeline layout needs one --pp (and at most one --vpp) beside it")
    if options.pipeline_layout is not None:
        layout = PipelineLayout.parse(options.pipeline_layout, pp[0])
        layout.validate(model.num_layers, len(model.mtp))
        return layout
    return PipelineLayout.first_last(
        model.num_layers, pp[0], vpp[0], options.first_stage_layers, options.last_stage_layers, len(model.mtp)
    )


def practice(asked: Asked) -> tuple[Recipe, ...]:
    """Recipes that ship for this model on this kind of GPU, at about this number of them."""
    question = asked.question
    near = precedents(
        names_of(question.model), question.cluster.gpu, question.job.task, question.cluster.world,
        precision=question.job.precision, count=100,
    )  # fmt: skip
    kind = question.cluster.gpu.name.split("-")[0]
    return tuple(row for row in near if row.gpu == kind and 0.5 <= row.gpus / question.cluster.world <= 2)


def names_of(model: Model) -> tuple[str, ...]:
    """Every name of a model."""
    return (model.name, *((model.hugging_face_id,) if model.hugging_face_id else ()), *model.aliases)
