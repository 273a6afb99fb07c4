"""Published runs as questions to the cost model: one reader for every file of the published format.

A row names model, hardware, layout and step time; a settings file, joined by `id`, adds the execution
flags. What a row does not say is left at the framework's usual value, and `Run.assumed` lists it.
"""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

from meshwright.cluster.catalog import GBIT, find_gpu
from meshwright.cluster.parse import build_cluster
from meshwright.cluster.spec import Cluster
from meshwright.cost.question import Question
from meshwright.errors import MeshwrightError, QuestionError
from meshwright.job.spec import Execution, GradDtype, Job, Stack
from meshwright.layout.layout import Layout
from meshwright.layout.pipeline import PipelineLayout
from meshwright.model import catalog
from meshwright.model.rows import model_from_row
from meshwright.model.spec import Attention, Layer, Mlp, Model
from settings import execution_of, precision_of, recipe_named, release_of

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
                named = by_recipe.get(recipe_named(row), {})
                runs.append(read_run(row, by_id.get(row["id"], named)))
                continue
            except (MeshwrightError, ValueError) as error:
                reason = str(error)
        refused[row["id"]] = reason
    return runs, refused


def read_run(row: Row, settings: Row) -> Run:
    """One row; QuestionError or ValueError where it does not say enough."""
    model = with_tokens(model_of(row), row)
    cluster = cluster_of(row)
    sizes = {
        name: _whole(row, column) for name, column in (("seq_length", "seq_len"), ("global_batch", "gbs"))
    }
    precision = precision_of(row, settings)
    job = Job(
        **sizes,
        precision=precision,
        task=row.get("task") or "pretrain",  # type: ignore[arg-type]
        grad_dtype=gradient_dtype(row, settings),
        packing=packing_of_row(row),
    )
    layout = layout_of(row, settings)
    execution = execution_of(row, settings, model, cluster)
    stack = Stack(release=release_of(row), framework="megatron-bridge")
    measured = (
        row.get("step_time_s_from_tflops") if row.get("tokens_quantised") == "yes" else row.get("step_time_s")
    )
    if not measured:
        raise QuestionError("no step time")
    layout.check_world(cluster.world)
    layout.num_microbatches(cluster.world, job.global_batch)
    question = Question(model=model, cluster=cluster, job=job, stack=stack)
    pipeline = pipeline_of(model, layout, settings)
    return Run(
        id=row["id"], row=row, settings=settings, question=question, layout=layout, execution=execution,
        pipeline=pipeline, measured=float(measured), known=row.get("settings_match") in ("exact", "partial"),
    )  # fmt: skip


def gradient_dtype(row: Row, settings: Row) -> GradDtype:
    """As stated; the performance recipes of NeMo and Megatron Bridge reduce gradients in bf16."""
    said = settings.get("grad_reduce_in_fp32")
    if said:
        return "fp32" if said == "True" else "bf16"
    return "bf16" if row["framework"].startswith(("nemo", "megatron-bridge")) else "fp32"


SQUAD = ((128, 0.15), (256, 0.6), (512, 0.25))
"""Sample lengths of the packed SQuAD data that NeMo's and Megatron Bridge's fine-tuning benchmarks train on
(tokens, share): an estimate; mean about 250."""


def packing_of_row(row: Row) -> tuple[tuple[int, float], ...]:
    """Fine-tuning benchmarks of NeMo and Megatron Bridge pack short samples; everything else is whole."""
    tuned = row.get("task") in ("sft", "lora") and row["framework"] in ("nemo", "megatron-bridge")
    return SQUAD if tuned and "qwen3" not in row.get("model_key", "") else ()


def layout_of(row: Row, settings: Row) -> Layout:
    """Degrees of a row; a blank one is 1 where the framework does not have it, and refused otherwise."""
    if row.get("tp", "") == "" and row.get("fsdp", "") in ("", "0"):
        raise QuestionError("layout not published")
    names = {"tp": "tp", "pp": "pp", "vpp": "vp", "cp": "cp", "ep": "ep", "etp": "etp"}
    degrees = {name: int(row.get(column) or 1) for name, column in names.items()}
    if row.get("mbs", "") == "":
        raise QuestionError("micro-batch size not published")
    if degrees["pp"] == 1:
        degrees["vpp"] = 1
    elif not row.get("vp") and row["framework"].startswith("nemo") and not settings:
        raise QuestionError("interleaving not published")
    said = settings.get("sequence_parallel")
    sp = degrees["tp"] > 1 and said != "False" and "no SP" not in row.get("notes", "")
    return Layout(**degrees, mbs=_whole(row, "mbs"), sp=sp)


def pipeline_of(model: Model, layout: Layout, settings: Row) -> PipelineLayout | None:
    """The pipeline layout that the settings name; None: the default one."""
    if settings.get("pipeline_layout"):
        return PipelineLayout.parse(settings["pipeline_layout"], layout.pp)
    embedding, loss = (settings.get(f"account_for_{end}_in_pp") == "True" for end in ("embedding", "loss"))
    if layout.pp == 1 or not (embedding or loss):
        return None
    try:
        return PipelineLayout.account(
            model.num_layers, layout.pp, layout.vpp, embedding=embedding, loss=loss, mtp=len(model.mtp)
        )
    except MeshwrightError:
        return None


@cache
def _more_models() -> Mapping[str, Mapping[str, object]]:
    rows = json.loads((DATA / "models.json").read_text(encoding="utf-8"))["models"]
    return {row["name"]: row for row in rows}


def model_of(row: Row) -> Model:
    """The model of a row: a catalog name, one of data/models.json, or the sizes in the row or its notes."""
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


def cluster_of(row: Row) -> Cluster:
    """The cluster of a row."""
    name, system = row["gpu"].rstrip("?"), row.get("system", "")
    gpus = _whole(row, "gpus")
    variant = re.match(r"H100-96GB-HBM2e-500W", name)
    gpu = find_gpu("H100" if variant else re.sub(r" .*", "", name))
    if variant:
        gpu = replace(gpu, hbm=2.4e12, name=name)
    network = next((gbps for words, gbps in NETWORKS.items() if words in system), None)
    per_node = None if gpus % gpu.gpus_per_node == 0 or gpus < gpu.gpus_per_node else 4
    cluster = build_cluster(gpu, gpus, per_node)
    return replace(cluster, network=network * GBIT) if network else cluster


def _whole(row: Row, column: str) -> int:
    text = row.get(column, "")
    if not text or not float(text).is_integer():
        raise QuestionError(f"{column} not published")
    return int(float(text))
