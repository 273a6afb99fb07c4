"""Shipped recipes as questions to the planner, with the settings that the layout table does not hold."""

from __future__ import annotations

import csv
import json
from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path

from meshwright.cluster.catalog import find_gpu
from meshwright.cluster.parse import build_cluster
from meshwright.cost.question import Question
from meshwright.job.precedents import Recipe
from meshwright.job.spec import Execution, Job, Recompute, Stack
from meshwright.layout.layout import Layout
from meshwright.layout.pipeline import PipelineLayout
from meshwright.model import catalog
from meshwright.model.spec import Model

SETTINGS = Path(__file__).parent / "data" / "recipe_settings.csv"
RELEASE = "26.08"
"""The recipes are those of the Megatron Bridge commit that this release of the stack was cut from."""
OTHER_NAMES = {"olmoe_7b": "olmoe-1b-7b"}
Row = Mapping[str, str]


@cache
def _all_settings() -> Mapping[tuple[str, str], Row]:
    with SETTINGS.open(encoding="utf-8", newline="") as file:
        return {(row["recipe"], row["kind"]): row for row in csv.DictReader(file)}


def settings_of(recipe: Recipe) -> Row:
    """What a recipe sets beside its layout."""
    return _all_settings()[recipe.recipe, recipe.kind]


def model_of(recipe: Recipe) -> Model:
    """The model of a recipe, with the depth and the prediction heads that it sets."""
    row = settings_of(recipe)
    names = [OTHER_NAMES.get(recipe.model), recipe.hugging_face_id, recipe.model]
    known = [name for name in names if name and catalog.known(name)]
    model = catalog.find(known[0] if known else recipe.model)
    if row["num_layers"] not in ("", "0"):
        model = replace(model, pattern=model.pattern[: int(row["num_layers"])])
    return model if row["mtp_num_layers"] else replace(model, mtp=())


def question_of(recipe: Recipe) -> Question:
    """Model, cluster and job of a recipe."""
    row = settings_of(recipe)
    aware = row["precision_aware_optimizer"] == "1" and row["exp_avg_dtype"] == "bfloat16"
    job = Job(
        seq_length=recipe.seq_length, global_batch=recipe.gbs, precision=recipe.precision, task=recipe.task,
        grad_dtype="bf16" if row["grad_reduce_in_fp32"] == "0" else "fp32",
        optimizer="adam-precision-aware" if aware else "adam",
    )  # fmt: skip
    return Question(
        model=model_of(recipe),
        cluster=build_cluster(find_gpu(recipe.gpu), recipe.gpus),
        job=job,
        stack=Stack(release=RELEASE, framework="megatron-bridge"),
    )


def layout_of(recipe: Recipe) -> Layout:
    names = ("tp", "pp", "vpp", "cp", "ep", "etp", "mbs", "sp")
    return Layout(**{name: getattr(recipe, name) for name in names})


def pipeline_of(recipe: Recipe, model: Model) -> PipelineLayout | None:
    """The layers of each stage as the recipe gives them; None for Megatron's even split."""
    row, text = settings_of(recipe), recipe.pipeline_layout
    if text:
        return PipelineLayout.parse(json.loads(text) if text.startswith("[") else text, recipe.pp)
    if recipe.pp == 1:
        return None
    first, last = (int(row[f"{end}_stage_layers"] or 0) for end in ("first", "last"))
    if first or last:
        return PipelineLayout.first_last(
            model.num_layers, recipe.pp, recipe.vpp, first or None, last or None, len(model.mtp)
        )
    embedding, loss = (row[f"account_for_{end}"] == "1" for end in ("embedding", "loss"))
    if embedding or loss:
        return PipelineLayout.account(
            model.num_layers, recipe.pp, recipe.vpp, embedding=embedding, loss=loss, mtp=len(model.mtp)
        )
    return None


def execution_of(recipe: Recipe, model: Model) -> Execution:
    """The execution flags of a recipe."""
    row = settings_of(recipe)
    overlaps = {"tp": recipe.tp_overlap, "ep": recipe.ep_overlap, "dp": recipe.dp_overlap}
    return Execution(
        recompute=_recompute(recipe, row),
        dispatcher=recipe.dispatcher or "alltoall",  # type: ignore[arg-type]
        cuda_graphs=_graphs(recipe, row, model),  # type: ignore[arg-type]
        overlaps=frozenset(kind for kind, on in overlaps.items() if on),  # type: ignore[arg-type]
        fsdp=recipe.fsdp,
        fsdp_sharding=row["fsdp_sharding"] if recipe.fsdp else "optim_grads_params",  # type: ignore[arg-type]
        distributed_optimizer=recipe.fsdp or row["distributed_optimizer"] == "1",
        cp_comm=row["cp_comm"] or "p2p",  # type: ignore[arg-type]
        cpu_offload_layers=_offloaded(row, model),
        vp_group=int(row["vp_group"]) if row["vp_group"] else None,
    )


def _offloaded(row: Row, model: Model) -> int:
    """Layers whose activations go to the host; a number beyond the depth is a default not in force."""
    layers = int(row["cpu_offload_layers"] or 0)
    return layers if layers < model.num_layers else 0


def _recompute(recipe: Recipe, row: Row) -> Recompute:
    if recipe.recompute == "selective":
        return Recompute(
            granularity="selective", modules=tuple(recipe.recompute_modules.split()) or ("core_attn",)
        )
    if recipe.recompute == "full" and row["recompute_method"] == "block":
        return Recompute(granularity="full", method="block", num_layers=int(row["recompute_num_layers"]))
    return Recompute(granularity=recipe.recompute)  # type: ignore[arg-type]


def _graphs(recipe: Recipe, row: Row, model: Model) -> str:
    if recipe.cuda_graphs in ("", "none"):
        return "none"
    if recipe.cuda_graphs == "full_iteration" or row["cuda_graph_modules"] == "full_iteration":
        return "full"
    # a graph over the router forbids recompute of the whole MoE part, so such recipes graph attention alone
    return "moe" if model.is_moe and "moe" not in recipe.recompute_modules.split() else "attn"
