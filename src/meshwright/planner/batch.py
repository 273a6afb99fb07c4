"""Runs from the rows of a table: one published or planned training run a row, in CSV columns.

Columns (all optional but a model and a GPU kind): id, model, gpu, gpus, framework, task, precision, gbs,
mbs, seq_len, tp, pp, vp, cp, ep, etp, dp, fsdp, sharding, recompute, dispatcher, other_settings; `layers`,
`hidden`, `heads`, `query_groups`, `ffn`, `experts`, `topk`, `vocab` change the catalog model or replace it;
`args_json` holds the arguments of a Megatron-LM run and then says everything. A second table, joined by
`id`, adds execution settings of Megatron Bridge.
"""

from __future__ import annotations

import csv
import json
import math
import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from meshwright.cluster.catalog import find_gpu
from meshwright.cluster.parse import parse_cluster
from meshwright.cluster.spec import Cluster
from meshwright.cost.memory import memory
from meshwright.cost.question import Question
from meshwright.cost.stages import all_stages
from meshwright.errors import MeshwrightError, QuestionError
from meshwright.job.defaults import default_job
from meshwright.job.spec import Execution, Recompute, Stack
from meshwright.job.stacks import default_execution
from meshwright.layout.layout import DEGREES, Layout
from meshwright.layout.pipeline import PipelineLayout, default_pipeline
from meshwright.layout.table import LayoutTable
from meshwright.model.catalog import find
from meshwright.model.change import reaching
from meshwright.model.spec import Model
from meshwright.planner.again import one_row
from meshwright.planner.arguments import Setup, setup_from_arguments
from meshwright.planner.batch_choice import chosen_layout, chosen_vpp
from meshwright.planner.batch_flags import (
    Row,
    execution_of,
    hints,
    job_of,
    precision_of,
    said,
    says_recompute,
    whole,
)
from meshwright.planner.batch_time import packing_of, release_of

MOST_ROWS = 100_000
MOST_LAYERS = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One row as a question with its layout; `table()` is what the cost functions take."""

    id: str
    question: Question
    layout: Layout
    execution: Execution
    pipeline: PipelineLayout | None
    chosen: tuple[str, ...] = ()
    """Degrees that the row does not state and that a plan would choose so."""

    def table(self) -> LayoutTable:
        return one_row(self.question, self.layout, self.execution, self.pipeline)


@dataclass(frozen=True, slots=True, kw_only=True)
class Unreadable:
    """A row that describes no run that can be priced, and why."""

    id: str
    why: str


def read_rows(path: Path) -> list[dict[str, str]]:
    """The rows of a CSV file; QuestionError where it is no table."""
    try:
        with path.open(newline="", encoding="utf-8") as file:
            csv.field_size_limit(10_000_000)
            lines = zip(csv.DictReader(file), range(MOST_ROWS + 1), strict=False)
            rows = [{name: cell or "" for name, cell in row.items() if name} for row, _ in lines]
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise QuestionError(f"{path} cannot be read as a CSV table: {error}") from None
    if len(rows) > MOST_ROWS:
        raise QuestionError(f"{path} has more than {MOST_ROWS:,} rows; split it")
    return rows


def read_batch(
    path: Path, settings: Path | None = None, *, choose: bool = False
) -> Iterator[Run | Unreadable]:
    """Every row of a table of runs, joined with its settings; a row that makes no sense says why.

    choose  take the layout that a plan would put first where a row states none
    """
    joined = {row.get("id", ""): row for row in read_rows(settings)} if settings is not None else {}
    for number, row in enumerate(read_rows(path), start=1):
        name = row.get("id") or f"row {number}"
        try:
            yield read_run(row, joined.get(name), choose=choose)
        except MeshwrightError as error:
            yield Unreadable(id=name, why=str(error))


def read_run(
    row: Row, settings: Row | None = None, models: Mapping[str, Model] | None = None, *, choose: bool = False
) -> Run:
    """The run of one row; QuestionError or LayoutError where it describes none.

    models  models by name beside those of the catalog
    choose  take the layout that a plan would put first where the row states none
    """
    name = row.get("id") or row.get("test_case") or row.get("model") or "run"
    if said(row, "args_json"):
        return _from_arguments(name, row)
    if said(row, "hidden"):
        return _run(name, row, setup_from_arguments(_arguments_of_columns(row), program=_program(row)))
    model = _model(row, models or {})
    stated = states_layout(row)
    if not stated and not choose:
        raise QuestionError(f"the row states no layout (none of {', '.join(STATE_A_LAYOUT)})")
    layout, pipeline = _layout(row, model, settings or {})
    cluster = _cluster(row, layout)
    precision = precision_of(row, settings or {})
    task = said(row, "task") or ("lora" if re.search(r"\blora\b", hints(row)) else "pretrain")
    job, _ = default_job(
        [model.name],
        cluster.gpu,
        cluster.world,
        task=task,  # type: ignore[arg-type]
        precision=precision,
        max_position=model.max_position,
        seq_length=whole(row, "seq_len"),
        global_batch=whole(row, "gbs") or (_batch(row, layout, cluster) if stated else None),
    )
    bridge = "bridge" in row.get("framework", "") or "nemo" in row.get("framework", "")
    stack = Stack(release=release_of(row), framework="megatron-bridge" if bridge else "megatron-lm")
    execution = execution_of(
        row, settings or {}, default_execution(stack, cluster.gpu, model.is_moe, precision)
    )
    if "optimizer_offload" in hints(row) and (share := re.search(r"opt(\d+)", hints(row))):
        execution = replace(execution, optimizer_offload=int(share.group(1)) / 100)
    job = replace(job_of(job, row, settings or {}), packing=packing_of(row, model.is_moe))
    model = reaching(model, job.seq_length)  # it ran, so its positions reached
    question = Question(model=model, cluster=cluster, job=job, stack=stack)
    chosen: tuple[str, ...] = ()
    if not stated:
        layout, execution, pipeline = chosen_layout(question, execution, whole(row, "mbs"))
        chosen = DEGREES
    elif choose and pipeline is None and leaves_interleaving_open(row, layout):
        layout = replace(layout, vpp=chosen_vpp(question, layout, execution))
        chosen = ("vpp",) if layout.vpp > 1 else ()
    run = Run(
        id=name, question=question, layout=layout, execution=execution, pipeline=pipeline, chosen=chosen
    )
    return run if not stated or says_recompute(row, settings or {}) else lightest_that_fits(run)


STATE_A_LAYOUT = ("tp", "pp", "cp", "ep", "fsdp", "sharding")


def states_layout(row: Row) -> bool:
    """Whether a row says how its GPUs divide the training; one GPU leaves nothing to say."""
    return any(said(row, name) for name in STATE_A_LAYOUT) or (whole(row, "gpus") or 1) == 1


def leaves_interleaving_open(row: Row, layout: Layout) -> bool:
    """Whether a row of NeMo, whose configs interleave, says nothing of its interleaving.

    Megatron-LM and Megatron Bridge do not interleave where nothing is said.
    """
    return "nemo" in row.get("framework", "") and not said(row, "vp") and layout.pp > 1 and layout.vpp == 1


def _batch(row: Row, layout: Layout, cluster: Cluster) -> int:
    """The global batch [samples] of a row that states none: its micro-batches, else one a rank."""
    return layout.mbs * layout.dp(cluster.world) * (whole(row, "ga") or 1)


def lightest_that_fits(run: Run) -> Run:
    """The run with the least recompute that may fit, where its row does not say what is recomputed."""
    for recompute in (
        Recompute(),
        Recompute(granularity="selective", modules=("mlp",)),
        Recompute(granularity="full"),
    ):
        tried = replace(run, execution=replace(run.execution, recompute=recompute))
        table = tried.table()
        if memory(run.question, table, all_stages(table.splits)).may_fit[0]:
            return tried
    return run


def _from_arguments(name: str, row: Row) -> Run:
    try:
        given = json.loads(row["args_json"])
    except json.JSONDecodeError as error:
        raise QuestionError(f"args_json of {name} is not JSON: {error}") from None
    if not isinstance(given, dict):
        raise QuestionError(f"args_json of {name} is no JSON object")
    vocab = whole(row, "vocab")
    return _run(name, row, setup_from_arguments(given, vocab=vocab, program=_program(row)))


def _names(row: Row) -> str:
    return " ".join(row.get(column) or "" for column in ("model_family", "test_case", "model")).lower()


def _program(row: Row) -> str:
    """Which of Megatron-LM's pretrain programs a row's names speak of."""
    return "bert" if "bert" in _names(row) else "gpt"


def _run(name: str, row: Row, setup: Setup) -> Run:
    cluster = _cluster(row, setup.layout)
    question = Question(
        model=setup.model, cluster=cluster, job=setup.job, stack=Stack(framework="megatron-lm")
    )
    return Run(
        id=name, question=question, layout=setup.layout, execution=setup.execution, pipeline=setup.pipeline
    )


def _arguments_of_columns(row: Row) -> dict[str, Any]:
    """Megatron-LM's arguments from columns of the same meaning; Llama's form unless the row is a GPT."""
    names = {
        "layers": "num-layers", "hidden": "hidden-size", "heads": "num-attention-heads",
        "query_groups": "num-query-groups", "ffn": "ffn-hidden-size", "experts": "num-experts",
        "topk": "moe-router-topk", "seq_len": "seq-length", "vocab": "vocab-size", "mbs": "micro-batch-size",
        "gbs": "global-batch-size", "tp": "tensor-model-parallel-size", "pp": "pipeline-model-parallel-size",
        "cp": "context-parallel-size", "ep": "expert-model-parallel-size",
        "etp": "expert-tensor-parallel-size",
        "dispatcher": "moe-token-dispatcher-type", "recompute": "recompute-granularity",
        "recompute_modules": "recompute-modules", "fp8_recipe": "fp8-recipe", "fp8": "fp8-format",
        "transformer_impl": "transformer-impl", "attention_backend": "attention-backend",
        "dist_opt": "use-distributed-optimizer", "sp": "sequence-parallel", "fsdp": "use-megatron-fsdp",
        "deterministic": "deterministic-mode",
    }  # fmt: skip
    given: dict[str, Any] = {name: row[column] for column, name in names.items() if said(row, column)}
    given["group-query-attention"] = bool(said(row, "query_groups"))
    given["bf16"] = True
    chunks = whole(row, "vp")
    if chunks and "CI" in row.get("framework", "CI"):
        given["num-layers-per-virtual-pipeline-stage"] = chunks
    elif chunks:
        given["num-virtual-stages-per-pipeline-rank"] = chunks
    if "gpt" not in _names(row) and "bert" not in _names(row):
        given |= {
            "swiglu": True, "normalization": "RMSNorm", "position-embedding-type": "rope",
            "disable-bias-linear": True, "untie-embeddings-and-output-weights": True, "hidden-dropout": 0,
            "attention-dropout": 0, "no-create-attention-mask-in-dataloader": True,
        }  # fmt: skip
    return given


def _model(row: Row, models: Mapping[str, Model]) -> Model:
    name = said(row, "model_key") if said(row, "model_key") in models else said(row, "model")
    if not name:
        raise QuestionError("the row names no model")
    model = models.get(name) or _found(name, said(row, "model_key"))
    cut = re.search(r"\(L=(\d+)\)|-proxyL(\d+)", f"{name} {row.get('model_key', '')}")
    layers = whole(row, "layers") or (int(cut.group(1) or cut.group(2)) if cut else None)
    return with_layers(model, layers) if layers and layers != model.num_layers else model


def _found(name: str, key: str) -> Model:
    """The catalog's model of a row's name or, where that says more or less than a name, of its key."""
    bare = WORDS_BESIDE_A_NAME.sub(" ", name).strip()
    for tried in (bare, key):
        with suppress(QuestionError):
            return find(tried)
    return find(bare)


WORDS_BESIDE_A_NAME = re.compile(
    r"\(.*?\)|\b(?:sft|lora|peft|pretrain|finetuning|mlperf|maxtext|paxml|\d+-node|2[45]\.\d\d)\b",
    re.IGNORECASE,
)
"""What rows write beside the name of a model."""


def with_layers(model: Model, layers: int) -> Model:
    """The model cut to `layers` layers, or grown with more of its last kind."""
    if layers > MOST_LAYERS:
        raise QuestionError(f"{layers:,} layers; at most {MOST_LAYERS:,} are read")
    pattern = (model.pattern + (model.pattern[-1],) * max(layers - model.num_layers, 0))[:layers]
    used = sorted({*pattern, *model.mtp})
    return replace(
        model,
        kinds=tuple(model.kinds[kind] for kind in used),
        pattern=tuple(used.index(kind) for kind in pattern),
        mtp=tuple(used.index(kind) for kind in model.mtp),
    )


def _cluster(row: Row, layout: Layout) -> Cluster:
    """The row's GPUs; where no number is given, those of its data parallel size, or whole nodes."""
    kind = re.sub(r"\(.*?\)|\?.*", "", said(row, "gpu") or "H100").strip()
    gpu, memory = _gpu(kind)
    world = whole(row, "gpus") or (whole(row, "dp") or 0) * layout.pp * layout.dense_grid
    if not world:
        step = math.lcm(layout.min_gpus, find_gpu(gpu).gpus_per_node)
        world = step if step <= 8 * layout.min_gpus else layout.min_gpus
    return parse_cluster(f"{world}x{gpu}", gpu_memory_gb=memory)


def _gpu(kind: str) -> tuple[str, float | None]:
    """A known GPU's name and, where the row's variant has another memory, that [GiB that torch reports]."""
    parts = kind.split("-")
    for length in range(len(parts), 0, -1):
        short = "-".join(parts[:length])
        try:
            find_gpu(short)
        except QuestionError:
            continue
        size = re.search(r"(\d+)GB", kind)
        # torch sees about 0.98 GiB of each of a vendor's GB
        return short, int(size.group(1)) * 0.98 if length < len(parts) and size else None
    find_gpu(kind)
    return kind, None


def _layout(row: Row, model: Model, settings: Row) -> tuple[Layout, PipelineLayout | None]:
    tp, pp, vpp = (whole(row, name) or 1 for name in ("tp", "pp", "vp"))
    pp, vpp = max(pp, 1), max(vpp, 1)
    if vpp > 1 and pp == 1:
        vpp = 1
    ep = whole(row, "ep") or 1 if model.is_moe else 1
    layout = Layout(
        tp=tp, pp=pp, vpp=vpp, cp=whole(row, "cp") or 1, ep=ep, mbs=whole(row, "mbs") or 1,
        etp=whole(row, "etp") or whole(settings, "expert_tensor_parallel_size") or 1, sp=tp > 1,
    )  # fmt: skip
    text = said(settings, "pipeline_layout")
    mtp = len(model.mtp)
    if text and pp > 1:
        pipeline = PipelineLayout.parse(text, pp)
        pipeline.validate(model.num_layers, mtp)
        return replace(layout, vpp=pipeline.vpp), pipeline
    ends = [settings.get(f"account_for_{end}_in_pp") == "True" for end in ("embedding", "loss")]
    if any(ends) and (model.num_layers + sum(ends)) % (pp * vpp) == 0:
        return layout, PipelineLayout.account(model.num_layers, pp, vpp, ends[0], ends[1], mtp)
    if default_pipeline(model, pp, vpp) is None and pp > 1:
        raise QuestionError(f"{model.num_layers} layers have no split over pp {pp} x vpp {vpp}")
    return layout, None
