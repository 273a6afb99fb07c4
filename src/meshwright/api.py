"""The library: `plan`, `fit`, `estimate`, `advise`, ... The only place that composes the rooms."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from meshwright.cluster.catalog import all_gpus, find_gpu
from meshwright.cluster.parse import parse_cluster, parse_gpu_count
from meshwright.cluster.spec import Cluster
from meshwright.cost.question import Question
from meshwright.errors import QuestionError
from meshwright.job.defaults import Assumption, default_job
from meshwright.job.precedents import precedents
from meshwright.job.spec import Execution, Recompute, Stack
from meshwright.job.stacks import default_execution, execution_source
from meshwright.layout.layout import Layout
from meshwright.layout.pipeline import PipelineLayout, default_pipeline
from meshwright.layout.rules import Finding, View, check as check_rules
from meshwright.model.catalog import entries
from meshwright.model.load import load_model
from meshwright.model.parameters import count_parameters
from meshwright.model.spec import Model
from meshwright.planner.again import one_row, read_again
from meshwright.planner.answer import Estimate, Plans, degrees, estimates
from meshwright.planner.fit import fewest_gpus
from meshwright.planner.guide import Advice, GuideQuestion
from meshwright.planner.guide import advise as guide_advise
from meshwright.planner.reasons import binding, reasons
from meshwright.planner.search import Found, Progress, search
from meshwright.planner.space import Axes, free_flags


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """What a person may say about a training, beside model and GPUs; None lets Meshwright choose.

    Degrees may be one value or several (`tp=(1, 2, 4)`). `model_changes` overrides fields of the model.
    """

    seq_length: int | None = None
    global_batch: int | None = None
    precision: str = "bf16"
    optimizer: str = "adam"
    grad_dtype: str = "fp32"
    task: str = "pretrain"
    stack: str = "26.06"
    framework: str = "megatron-bridge"
    framework_version: str | None = None
    tp: int | tuple[int, ...] | None = None
    pp: int | tuple[int, ...] | None = None
    vpp: int | tuple[int, ...] | None = None
    cp: int | tuple[int, ...] | None = None
    ep: int | tuple[int, ...] | None = None
    etp: int | tuple[int, ...] | None = None
    mbs: int | tuple[int, ...] | None = None
    sp: bool | None = None
    pipeline_layout: str | None = None
    first_stage_layers: int | None = None
    last_stage_layers: int | None = None
    account_for_embedding: bool = False
    account_for_loss: bool = False
    recompute: Recompute | None = None
    execution: Mapping[str, object] = field(default_factory=dict)
    """Fields of `Execution` that are given; the others are what the stack uses on that GPU."""
    model_changes: Mapping[str, object] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """A question with everything filled in, and what was filled in."""

    question: Question
    execution: Execution
    assumptions: tuple[Assumption, ...]


def ask(model: str | Model, gpus: str | Cluster, options: Options) -> Asked:
    """Turn words into a question; raises QuestionError where they make no sense."""
    described = load_model(model, options.model_changes) if isinstance(model, str) else model
    cluster = parse_cluster(gpus) if isinstance(gpus, str) else gpus
    job, assumed = default_job(
        names_of(described), cluster.gpu, cluster.world,
        task=options.task, precision=options.precision, max_position=described.max_position,  # type: ignore[arg-type]
        seq_length=options.seq_length, global_batch=options.global_batch,
    )  # fmt: skip
    job = replace(job, optimizer=options.optimizer, grad_dtype=options.grad_dtype)  # type: ignore[arg-type]
    stack = Stack(release=options.stack, framework=options.framework, framework_version=options.framework_version)  # type: ignore[arg-type]
    execution = default_execution(stack, cluster.gpu, described.is_moe, job.precision)
    source = execution_source(stack, cluster.gpu, described.is_moe, job.precision)
    flags = _flags(execution, described, options, source)
    single = {name: value for name, value in options.execution.items() if not isinstance(value, tuple)}
    execution = replace(execution, **single)  # type: ignore[arg-type]
    question = Question(model=described, cluster=cluster, job=job, stack=stack)
    return Asked(question=question, execution=execution, assumptions=(*assumed, *flags))


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


def _axes(asked: Asked, options: Options, *, fixed: bool) -> Axes:
    """The axes of a search; with `fixed`, degrees that were not named are 1."""
    model = asked.question.model
    unnamed = (1,) if fixed else None
    given = {name: _values(getattr(options, name), unnamed) for name in ("tp", "pp", "vpp", "cp", "ep", "etp", "mbs")}
    pipeline = None
    if options.pipeline_layout is not None or options.first_stage_layers is not None or options.last_stage_layers is not None:
        pipeline = _pipeline(model, options, given)
        given["pp"], given["vpp"] = (pipeline.pp,), (pipeline.vpp,)
    return Axes(
        **given, sp=options.sp, execution=asked.execution, flags=_free_flags(asked, options),
        recompute=None if options.recompute is None else (options.recompute,), pipeline=pipeline,
    )  # fmt: skip


def _free_flags(asked: Asked, options: Options) -> dict[str, tuple[object, ...]]:
    """Execution flags that the search varies: those given as a list, and those of the space nobody gave."""
    base = asked.execution
    free: dict[str, tuple[object, ...]] = {
        name: tuple(dict.fromkeys((getattr(base, name), *values)))
        for name, values in free_flags().items()
        if name not in options.execution
    }
    return free | {name: value for name, value in options.execution.items() if isinstance(value, tuple)}


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


def plan(
    model: str | Model, gpus: str | Cluster, options: Options | None = None, *, top: int = 5,
    variants: bool = False, progress: Progress | None = None,
) -> Plans:  # fmt: skip
    """The best layouts of a model on a cluster, fastest first; ties are marked.

    Shown is the best of each way to divide (tp, pp, cp, ep, etp, fsdp); with `variants` every layout is
    shown that differs in anything (vpp, micro-batch, recompute, flags).
    """
    start = time.perf_counter()
    options = options or Options()
    asked = ask(model, gpus, options)
    found = search(asked.question, _axes(asked, options, fixed=False), progress, _practice(asked))
    return _plans(asked, found, top, time.perf_counter() - start, variants=variants)


def _practice(asked: Asked) -> tuple[Layout, ...]:
    """Layouts that ship for this model on this kind of GPU, at about this number of them."""
    question = asked.question
    near = precedents(
        names_of(question.model), question.cluster.gpu, question.job.task, question.cluster.world,
        precision=question.job.precision, count=100,
    )  # fmt: skip
    kind = question.cluster.gpu.name.split("-")[0]
    return tuple(
        Layout(tp=row.tp, pp=row.pp, vpp=row.vpp, cp=row.cp, ep=row.ep, etp=row.etp, mbs=row.mbs, sp=row.sp)
        for row in near
        if row.gpu == kind and 0.5 <= row.gpus / question.cluster.world <= 2
    )


def names_of(model: Model) -> tuple[str, ...]:
    """Every name of a model."""
    return (model.name, *((model.hugging_face_id,) if model.hugging_face_id else ()), *model.aliases)


def _first_of_each(found: Found, top: int) -> list[int]:
    """The first row of each way to divide (tp, pp, cp, ep, etp, fsdp): the others are variants of it."""
    table, seen, rows = found.table, set(), []
    fsdp = [e.fsdp for e in table.executions]
    for row in range(len(table)):
        way = (*(int(getattr(table, name)[row]) for name in ("tp", "pp", "cp", "ep", "etp")), fsdp[int(table.execution[row])])
        if way not in seen:
            seen.add(way)
            rows.append(row)
        if len(rows) == top:
            break
    return rows


def _plans(asked: Asked, found: Found, top: int, seconds: float, *, variants: bool = False) -> Plans:
    rows = list(range(min(top, len(found.table)))) if variants else _first_of_each(found, top)
    answers = estimates(asked.question, found.table.rows(np.array(rows, dtype=np.int64))) if rows else ()
    told = [
        _told(asked, answer, tied=row < found.ties and found.ties > 1, why=reasons(found, row) if found.fitting else ())
        for row, answer in zip(rows, answers, strict=True)
    ]
    return Plans(
        plans=tuple(told), ties=found.ties, searched=found.searched, scored=found.scored,
        valid=found.valid, fitting=found.fitting, seconds=seconds, refused=found.reasons,
    )  # fmt: skip


def _told(asked: Asked, answer: Estimate, *, tied: bool, why: tuple[str, ...]) -> Estimate:
    """An estimate with its assumptions, findings, binding and reasons."""
    more = _layout_assumptions(asked.question.model, answer)
    uneven = answer.pipeline_layout if more else ""
    findings = _findings(asked, _layout(answer), answer.execution, uneven)
    return replace(
        answer, tied=tied, reasons=why, binding=binding(answer), assumptions=(*asked.assumptions, *more),
        findings=findings,
    )  # fmt: skip


def _layout_assumptions(model: Model, answer: Estimate) -> tuple[Assumption, ...]:
    """An automatic pipeline layout is said, since Megatron could not divide the layers evenly."""
    layout = answer.layout
    if not _uneven(model, _layout(answer)):
        return ()
    why = f"automatic: {model.num_layers} layers do not divide over pp {layout.pp} x vpp {layout.vpp}"
    return (Assumption(option="--pipeline-layout", value=answer.pipeline_layout, source=why),)


def _uneven(model: Model, layout: Layout) -> bool:
    return model.num_layers % (layout.pp * layout.vpp) != 0


def _layout(answer: Estimate) -> Layout:
    row = answer.layout
    return Layout(
        tp=row.tp, pp=row.pp, vpp=row.vpp, cp=row.cp, ep=row.ep, etp=row.etp, mbs=row.mbs, sp=row.sp
    )


def _findings(asked: Asked, layout: Layout, execution: Execution, pipeline: str) -> tuple[Finding, ...]:
    """What the rules say of a layout; `pipeline` is its layout string where it is not Megatron's even one."""
    question = asked.question
    said = {"pipeline_model_parallel_layout": pipeline} if pipeline else {}
    view = View.of(
        said,
        framework=question.stack.framework, version=question.stack.framework_version,
        release=question.stack.release, layout=layout, model=question.model, cluster=question.cluster,
        job=question.job, execution=execution,
    )  # fmt: skip
    return check_rules(view)


def estimate(model: str | Model, gpus: str | Cluster, options: Options | None = None) -> Estimate:
    """Memory and time of one layout, term by term; degrees not named are 1."""
    options = options or Options()
    asked = ask(model, gpus, options)
    axes = _axes(asked, options, fixed=True)
    several = [name for name in ("tp", "pp", "vpp", "cp", "ep", "etp", "mbs") if len(getattr(axes, name) or ()) != 1]
    if several:
        raise QuestionError(f"estimate takes one layout; {', '.join(several)} has several values (use plan)")
    sp = axes.sp if axes.sp is not None else axes.tp != (1,)
    layout = Layout(**{name: getattr(axes, name)[0] for name in ("tp", "pp", "vpp", "cp", "ep", "etp", "mbs")}, sp=sp)
    pipeline = axes.pipeline or default_pipeline(asked.question.model, layout.pp, layout.vpp)
    uneven = pipeline.string() if pipeline is not None and _uneven(asked.question.model, layout) else ""
    findings = _findings(asked, layout, asked.execution, uneven)
    if any(finding.severity == "error" for finding in findings):
        return _refused(asked, layout, findings, axes)
    found = search(asked.question, axes)
    if not len(found.table):
        return _refused(asked, layout, findings, axes)
    answer = estimates(asked.question, found.table.rows(slice(0, 1)))[0]
    return _told(asked, answer, tied=False, why=())


def _refused(asked: Asked, layout: Layout, findings: tuple[Finding, ...], axes: Axes) -> Estimate:
    """A layout that cannot start: what is known of it stays, memory and time are absent."""
    question = asked.question
    pipeline = axes.pipeline or default_pipeline(question.model, layout.pp, layout.vpp)
    return Estimate(
        question=question, execution=asked.execution,
        layout=degrees(layout, question.cluster.world, question.job.global_batch),
        pipeline_layout=pipeline.string() if pipeline is not None and layout.pp > 1 else "",
        min_gpus=layout.min_gpus, guide_min_gpus=layout.guide_min_gpus, wrong_product=layout.wrong_product,
        valid=False, findings=findings, assumptions=asked.assumptions,
    )  # fmt: skip


def estimate_again(data: Mapping[str, object]) -> Estimate:
    """The estimate of an answer's own JSON: the same layout, flags and question, and so the same numbers."""
    question, layout, execution, pipeline = read_again(data)
    asked = Asked(question=question, execution=execution, assumptions=())
    findings = _findings(asked, layout, execution, pipeline.string() if pipeline is not None else "")
    if any(finding.severity == "error" for finding in findings):
        return _refused(asked, layout, findings, Axes(pipeline=pipeline))
    answer = estimates(question, one_row(question, layout, execution, pipeline))[0]
    return _told(asked, answer, tied=False, why=())


def fit(
    model: str | Model, gpu: str, options: Options | None = None, *, max_gpus: int = 16384, top: int = 3,
    cluster_overrides: Mapping[str, object] | None = None,
) -> Plans:  # fmt: skip
    """The fewest GPUs of a kind that train a model, and the best layouts on them."""
    start = time.perf_counter()
    options = options or Options()
    if not gpu:
        raise QuestionError("say which kind of GPU: --gpu H100")
    per_node = find_gpu(gpu).gpus_per_node
    asked = ask(model, parse_cluster(f"{per_node}x{gpu}", **(cluster_overrides or {})), options)  # type: ignore[arg-type]
    axes = _axes(asked, options, fixed=False)
    sized = fewest_gpus(asked.question, axes, most=max_gpus)
    if sized is None:
        nothing = Found(table=one_row(asked.question, Layout(), asked.execution, None).rows(slice(0, 0)), **NOTHING)  # type: ignore[arg-type]
        return _plans(asked, nothing, 0, time.perf_counter() - start)
    question, found = sized
    answer = _plans(replace(asked, question=question), found, top, time.perf_counter() - start)
    return replace(answer, min_gpus_fitting=question.cluster.world)


NOTHING = {
    "step": np.zeros(0), "peak": np.zeros(0), "ties": 0, "searched": 0, "scored": 0, "valid": 0, "fitting": 0,
}  # fmt: skip


def models(pattern: str = "") -> tuple[Mapping[str, object], ...]:
    """The catalog of models: name, Hugging Face id, parameters, active parameters, source."""
    return tuple(
        {
            "name": entry.name,
            "hugging_face_id": entry.hugging_face_id,
            "parameters": entry.parameters,
            "active_parameters": entry.active_parameters,
            "source": entry.source,
        }
        for entry in entries()
        if pattern.lower() in entry.name.lower()
    )


def gpus(pattern: str = "") -> tuple[Mapping[str, object], ...]:
    """The catalog of GPUs: name, memory [bytes], bandwidths [bytes/s], peaks [FLOP/s], sources."""
    return tuple(
        {
            "name": gpu.name,
            "architecture": gpu.architecture,
            "usable_memory_bytes": gpu.usable_memory,
            "hbm_bytes_per_second": gpu.hbm,
            "nvlink_bytes_per_second": gpu.nvlink,
            "nvlink_domain": gpu.nvlink_domain,
            "gpus_per_node": gpu.gpus_per_node,
            "nic_bytes_per_second": gpu.nic,
            "peak_flops": dict(gpu.peak),
            "sources": list(gpu.sources),
        }
        for gpu in all_gpus()
        if pattern.lower() in gpu.name.lower()
    )


def advise(
    model: str | Model | None = None, *, gpus: int | str | Cluster | None = None,
    degrees: Mapping[str, int] | None = None, params_b: float | None = None, active_b: float | None = None,
    seq_length: int | None = None, sp: bool | None = None, network: str | None = None,
    topics: Sequence[str] | None = None,
) -> Advice:  # fmt: skip
    """What the parallelism guide says of a model or size, and what holds; everything may be left out.

    params_b, active_b  billions of parameters, in place of a model
    gpus                a number, or a cluster ("256xH100")
    """
    described = load_model(model) if isinstance(model, str) else model
    total, active = (None if b is None else b * 1e9 for b in (params_b, active_b))
    if described is not None:
        counted = count_parameters(described)
        total, active = float(counted.total), float(counted.active)
    if isinstance(gpus, str):
        gpus = parse_gpu_count(gpus) if gpus.strip().lstrip("+-").isdigit() else parse_cluster(gpus)
    question = GuideQuestion(
        model=described, total_params=total, active_params=active, gpus=gpus, degrees=degrees or {},
        sp=sp, seq_length=seq_length, network=network,  # type: ignore[arg-type]
    )  # fmt: skip
    return guide_advise(question, topics)
