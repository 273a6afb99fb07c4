"""What runs on Megatron Core 0.16.1 showed: it starts, and trains something else, or never ends a step."""

from __future__ import annotations

import numpy as np
import pytest

from meshwright.job.spec import Execution, Job, Recompute, Stack
from meshwright.layout.layout import Layout
from meshwright.layout.pipeline import default_pipeline
from meshwright.layout.rules import View, check, legal_mask
from meshwright.layout.table import LayoutTable, SplitTable
from meshwright.model.catalog import find
from meshwright.model.spec import Model
from meshwright.planner.space import Axes, pipelines_of

NO_SPLITS = SplitTable(
    counts=np.zeros((1, 1, 1, 1), np.int16), kinds=("t",), stage_mask=np.ones((1, 1), bool), layouts=("",)
)


def table(execution: Execution | None = None, **columns: list[int]) -> LayoutTable:
    rows = max(len(values) for values in columns.values())
    names = ("tp", "pp", "vpp", "cp", "ep", "etp", "mbs")
    degrees = {name: np.array(columns.get(name, [1] * rows)) for name in names}
    return LayoutTable(
        world=np.full(rows, 64), gbs=np.full(rows, 512), **degrees, sp=degrees["tp"] > 1,
        execution=np.zeros(rows, int), executions=(execution or Execution(),),
        split=np.zeros(rows, int), splits=NO_SPLITS,
    )  # fmt: skip


def legal(model: Model, rows: LayoutTable, version: str | None = "0.16") -> list[bool]:
    stack = Stack(framework="megatron-core", framework_version=version)
    return legal_mask(model, None, Job(seq_length=4096, global_batch=512), rows, stack)[0].tolist()


def said(options: dict[str, object], model: str, layout: Layout, **more: object) -> set[str]:
    more.setdefault("version", "0.16")
    view = View.of(options, layout=layout, model=find(model), **more)
    return {finding.rule for finding in check(view)}


def test_experts_without_ep_are_split_as_dense_layers_are_before_0_19() -> None:
    """Mixtral with TP 2, EP 1, ETP 1 is 1e-3 off in its loss; 0.19 picks the group by ETP as well."""
    rows = table(tp=[2, 2, 2, 1, 1], ep=[1, 1, 2, 1, 1], etp=[1, 2, 1, 1, 2])
    assert legal(find("mixtral-8x7b"), rows) == [False, True, True, True, False]
    assert all(legal(find("mixtral-8x7b"), rows, "0.19"))
    assert legal(find("llama-3-8b"), table(tp=[2], ep=[1], etp=[1])) == [True]


def test_mlp_is_not_recomputed_where_linears_have_biases() -> None:
    """The first backward pass of 0.16.1 never ends; GPT-3 has biases, Llama has none."""
    recompute = Execution(recompute=Recompute(granularity="selective", modules=("core_attn", "mlp")))
    attention = Execution(recompute=Recompute(granularity="selective", modules=("core_attn",)))
    biased = find("gpt3-175b")
    assert legal(biased, table(recompute, tp=[1])) == [False]
    assert legal(biased, table(attention, tp=[1])) == [True]
    assert legal(find("llama-3-8b"), table(recompute, tp=[1])) == [True]


def test_gated_delta_nets_take_no_context_parallelism_before_0_18() -> None:
    """transformer_config.py of 0.16.1 and 0.17 asserts it; 0.18 asks for heads that divide over TP*CP."""
    rows = table(cp=[1, 2])
    assert legal(find("qwen3-next-80b-a3b"), rows, "0.16") == [True, False]
    assert legal(find("qwen3-next-80b-a3b"), rows, "0.17") == [True, False]
    assert legal(find("qwen3-next-80b-a3b"), rows, "0.18") == [True, True]


@pytest.mark.parametrize(
    ("pipeline", "framework", "warned"),
    [
        ("Et*20|t*20|t*20|tm|L", "megatron-core", True),
        ("Et*20|t*20|t*20|t|mL", "megatron-core", False),
        ("Et*20|t*20|t*20|tm|L", "megatron-lm", False),
    ],
)
def test_mtp_away_from_the_loss_is_in_no_embedding_group(pipeline: str, framework: str, warned: bool) -> None:
    options = {"pipeline_model_parallel_layout": pipeline}
    found = said(options, "deepseek-v3", Layout(pp=5, ep=8), framework=framework)
    assert ("layout-mtp-beside-loss" in found) == warned


def test_layers_of_a_hybrid_model_divide_by_pp_without_chunks() -> None:
    """Nemotron-H-56B over PP 4 built 116 of its 118 layers on Megatron Core 0.16.1; VPP is refused there."""
    rows = table(pp=[1, 2, 4, 2], vpp=[1, 1, 1, 59])
    for version in ("0.16", "0.19"):
        assert legal(find("nemotron-h-56b"), rows, version) == [True, True, False, False]
    assert default_pipeline(find("nemotron-h-56b"), 4) is None
    even = default_pipeline(find("nemotron-h-56b"), 2)
    assert even is not None
    assert even.layers_per_rank == (59, 59)


def test_a_hybrid_model_is_told_its_uneven_stages_by_their_ends_only() -> None:
    """118 = 28 + 30 + 30 + 30 (num_layers_in_first_pipeline_stage); a layout string is not read."""
    found = said({"num_layers_in_first_pipeline_stage": 28}, "nemotron-h-56b", Layout(pp=4))
    assert not {"hybrid-layers-divide-by-pp", "hybrid-no-layout", "middle-stages-divide"} & found
    text = "Et*28|t*30|t*30|t*30L"
    found = said({"pipeline_model_parallel_layout": text}, "nemotron-h-56b", Layout(pp=4))
    assert {"hybrid-layers-divide-by-pp", "hybrid-no-layout"} <= found


def test_the_planner_proposes_no_split_of_a_hybrid_model_that_megatron_cannot_be_told() -> None:
    pipelines = [
        pipeline
        for pp in (1, 2, 4, 8)
        for pipeline in pipelines_of(find("nemotron-h-56b"), Axes(vpp=(1,), splits="both"), pp)
    ]
    assert [pipeline.layers_per_rank for pipeline in pipelines] == [(118,), (59, 59)]
