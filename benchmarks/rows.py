"""Published runs as questions to the cost model: one reader for every file of the published format.

A row names model, hardware, layout and step time; a settings file, joined by `id`, adds the execution
flags. Rows are read by the code behind `meshwright estimate --batch`; what is added here are models that
the catalog lacks, networks that the `system` column names, and refusals.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

from meshwright.cluster.catalog import GBIT
from meshwright.cluster.spec import Cluster
from meshwright.cost.question import Question
from meshwright.errors import MeshwrightError, QuestionError
from meshwright.facts import load_json
from meshwright.job.spec import Execution
from meshwright.layout.layout import Layout
from meshwright.layout.pipeline import PipelineLayout
from meshwright.model import catalog
from meshwright.model.rows import model_from_row
from meshwright.model.spec import Attention, Layer, Mlp, Model
from meshwright.planner import batch

DATA = Path(__file__).parent / "data"
Row = Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One published run.

    measured  seconds a step
    known     its execution settings are published too (exactly or in part)
    """

    id: str
    row: Row
    settings: Row
    question: Question
    layout: Layout
    execution: Execution
    pipeline: PipelineLayout | None
    measured: float
    known: bool

    @property
    def family(self) -> str:
        return self.row.get("model_family") or self.question.model.family

    @property
    def gpu(self) -> str:
        return self.row.get("gpu_class") or self.row["gpu"]

    @property
    def is_moe(self) -> bool:
        return self.question.model.is_moe


def read_table(path: Path) -> list[dict[str, str]]:
    """Rows of a CSV file."""
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def read_runs(
    rows: Iterable[Row], settings: Iterable[Row] = (), excluded: Mapping[str, str] | None = None
) -> tuple[list[Run], dict[str, str]]:
    """The runs that can be asked, and why the others cannot: {id: reason}."""
    by_id = {row["id"]: row for row in settings}
    by_recipe = {row["settings_recipe"]: row for row in by_id.values()}
    runs, refused = [], dict[str, str]()
    for row in rows:
        reason = (excluded or {}).get(row["id"])
        if reason is None:
            try:
                named = by_recipe.get(recipe_in(row), {})
                runs.append(read_run(row, by_id.get(row["id"], named)))
                continue
            except (MeshwrightError, ValueError) as error:
                reason = str(error)
        refused[row["id"]] = reason
    return runs, refused


def read_run(row: Row, settings: Row) -> Run:
    """One row, read as `meshwright estimate --batch` reads it; an error where it does not say enough."""
    _refuse(row, settings)
    read = batch.read_run(
        row, settings, {row.get("model_key") or row["model"]: with_tokens(model_of(row), row)}
    )
    measured = (
        row.get("step_time_s_from_tflops") if row.get("tokens_quantised") == "yes" else row.get("step_time_s")
    )
    if not measured:
        raise QuestionError("no step time")
    question = replace(read.question, cluster=_as_built(read.question.cluster, row))
    execution = read.execution
    if row["framework"].startswith("llm-foundry"):
        factors = dict(question.calibration.factors)
        factors["attention"] = factors.get("attention", 1.0) * TRITON
        question = replace(question, calibration=replace(question.calibration, factors=factors))
        execution = replace(execution, attention_backend="flash")
    read.layout.check_world(question.cluster.world)
    read.layout.num_microbatches(question.cluster.world, question.job.global_batch)
    return Run(
        id=row["id"], row=row, settings=settings, question=question, layout=read.layout,
        execution=execution, pipeline=read.pipeline, measured=float(measured),
        known=row.get("settings_match") in ("exact", "partial"),
    )  # fmt: skip


def recipe_in(row: Row) -> str:
    """The recipe that a row's notes name, or ""."""
    found = re.search(r"recipe=(\w+)", row.get("notes", ""))
    return found[1] if found else ""


def _refuse(row: Row, settings: Row) -> None:
    """QuestionError where a row leaves out what decides its time."""
    for column, what in (
        ("gpus", "gpus"),
        ("gbs", "gbs"),
        ("seq_len", "seq_len"),
        ("mbs", "micro-batch size"),
    ):
        if not row.get(column):
            raise QuestionError(f"{what} not published")
    if row["precision"] == "?":
        raise QuestionError("precision not published")
    if not row.get("tp") and row.get("fsdp", "") in ("", "0"):
        raise QuestionError("layout not published")
    several = row.get("pp", "") not in ("", "1")
    if several and not row.get("vp") and row["framework"].startswith("nemo") and not settings:
        raise QuestionError("interleaving not published")


def _as_built(cluster: Cluster, row: Row) -> Cluster:
    """The cluster with what the `system` and `gpu` columns say of it."""
    system = row.get("system", "")
    network = next((gbps for words, gbps in NETWORKS.items() if words in system), None)
    if network:
        cluster = replace(cluster, network=network * GBIT)
    if row["gpu"].startswith("H100-96GB-HBM2e"):
        cluster = replace(cluster, gpu=replace(cluster.gpu, hbm=2.4e12))
    return cluster


@cache
def _more_models() -> Mapping[str, Mapping[str, object]]:
    rows = load_json("meshwright.model", "beside.json")["models"]
    return {row["name"]: row for row in rows}


def model_of(row: Row) -> Model:
    """The model of a row: one that the catalog finds, or the sizes in the row or its notes."""
    name = row.get("model_key") or row["model"]
    depth = re.search(r"proxyL(\d+)$", name)
    name = re.sub(r"-proxyL\d+$", "", name)
    notes = dict(re.findall(r"\b(hidden|layers|heads|vocab)=(\d+)", row.get("notes", "")))
    if name in _more_models():
        model = model_from_row(_more_models()[name])
    elif {"hidden", "layers"} <= notes.keys() and not catalog.known(name):
        heads = int(notes.get("heads") or SC21_HEADS.get(int(notes["hidden"]), int(notes["hidden"]) // 128))
        model = gpt(name, int(notes["hidden"]), int(notes["layers"]), heads, int(notes.get("vocab", 51200)))
    else:
        model = catalog.find(name)
    layers = int(depth[1]) if depth else int(row.get("layers") or 0)
    return replace(model, pattern=model.pattern[:layers]) if layers else model


TRITON = 1.8
"""Attention of llm-foundry in 2023: FlashAttention in Triton, 1.3 to 2.5 times slower than FlashAttention-2
(Dao 2023, arXiv 2307.08691, section 4.1); the geometric mean of the two."""

SC21_HEADS = {
    2304: 24,
    3072: 32,
    4096: 32,
    6144: 48,
    8192: 64,
    10240: 80,
    12288: 96,
    16384: 128,
    20480: 128,
    25600: 160,
}
"""Attention heads by hidden size. Source: Narayanan et al. 2021 (arXiv 2104.04473), table 1."""


def gpt(name: str, hidden: int, layers: int, heads: int, vocab: int, *, tied: bool = True) -> Model:
    """A GPT with biases, layer norms and learned positions, as in the Megatron papers."""
    attention = Attention(heads=heads, kv_heads=heads, head_dim=hidden // heads, qkv_bias=True, out_bias=True)
    layer = Layer(mixer=attention, ffn=Mlp(ffn=4 * hidden, gated=False, bias=True))
    return Model(
        name=name, family="gpt", hidden=hidden, kinds=(layer,), pattern=(0,) * layers, vocab_size=vocab,
        tied=tied, normalization="layer", learned_positions=2048,
    )  # fmt: skip


def with_tokens(model: Model, row: Row) -> Model:
    """Learned positions grow with the sequence that the row states."""
    if model.learned_positions and row.get("seq_len"):
        return replace(model, learned_positions=max(int(row["seq_len"]), 1))
    return model


NETWORKS = {"4x100Gb": 50, "1600 Gbps": 200, "3200 Gbps": 400}
"""Network speed of one GPU [Gbit/s] by what the `system` column says of the node."""
