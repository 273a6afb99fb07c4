"""`legal_mask` judges every row as `check` judges that one layout."""

from __future__ import annotations

import time

import numpy as np
import pytest

from meshwright.job.spec import Execution, Job, Recompute, Stack
from meshwright.layout.rules import ALL_RULES, View, examine, legal_mask
from meshwright.layout.table import LayoutTable, SplitTable
from meshwright.model.spec import Attention, Layer, Mlp, Model, Moe

MOE = Model(
    name="moe",
    family="test",
    hidden=4096,
    kinds=(
        Layer(mixer=Attention(heads=32, kv_heads=8, head_dim=128), ffn=Moe(experts=64, top_k=8, ffn=1408)),
    ),
    pattern=(0,) * 48,
    vocab_size=151936,
)
DENSE = Model(
    name="dense",
    family="test",
    hidden=3584,
    kinds=(Layer(mixer=Attention(heads=28, kv_heads=4, head_dim=128), ffn=Mlp(ffn=18944)),),
    pattern=(0,) * 28,
    vocab_size=152064,
)
EXECUTIONS = (
    Execution(),
    Execution(overlaps=frozenset({"dp", "ep"})),
    Execution(overlaps=frozenset({"dp", "ep"}), recompute=Recompute(granularity="full")),
    Execution(cp_comm="a2a"),
    Execution(dispatcher="deepep", cuda_graphs="moe"),
)
JOB = Job(seq_length=4096, global_batch=512)


def random_table(rows: int, executions: tuple[Execution, ...] = EXECUTIONS, seed: int = 0) -> LayoutTable:
    draw = np.random.default_rng(seed)

    def of(*choices: int) -> np.ndarray:
        return draw.choice(choices, rows).astype(np.int64)

    none = SplitTable(
        counts=np.zeros((1, 1, 1, 1), np.int16), kinds=("t",), stage_mask=np.ones((1, 1), bool), layouts=("",)
    )
    return LayoutTable(
        world=of(48, 64, 256),
        gbs=of(60, 96, 512),
        tp=of(1, 2, 3, 4, 7, 8),
        pp=of(1, 2, 3, 4, 8),
        vpp=of(1, 1, 2, 3, 4),
        cp=of(1, 1, 2, 3),
        ep=of(1, 1, 2, 8, 48),
        etp=of(1, 2),
        mbs=of(1, 2, 3),
        sp=draw.random(rows) < 0.5,
        execution=of(*range(len(executions))),
        executions=executions,
        split=np.zeros(rows, np.int64),
        splits=none,
    )


def errors_of_row(table: LayoutTable, row: int, model: Model, stack: Stack, automatic: bool) -> set[str]:
    options = {"world": int(table.world[row]), "gbs": int(table.gbs[row])}
    view = View.of(
        options | ({"pipeline_split": "automatic"} if automatic else {}),
        framework=stack.framework,
        release=stack.release,
        layout=table.layout(row),
        model=model,
        job=JOB,
        execution=table.executions[int(table.execution[row])],
    )
    rules = [rule for rule in ALL_RULES if rule.mask]
    return {finding.rule for finding in examine(view, rules).findings}


@pytest.mark.parametrize("model", [MOE, DENSE], ids=lambda model: model.name)
@pytest.mark.parametrize("framework", ["megatron-core", "megatron-lm", "megatron-bridge"])
@pytest.mark.parametrize("automatic", [True, False])
def test_mask_and_check_agree(model, framework, automatic):
    table, stack = random_table(150), Stack(framework=framework)
    legal, reasons = legal_mask(model, None, JOB, table, stack, automatic_split=automatic)
    expected = [errors_of_row(table, row, model, stack, automatic) for row in range(len(table))]
    assert legal.tolist() == [not broken for broken in expected]
    counted: dict[str, int] = {}
    for broken in expected:
        for rule in broken:
            counted[rule] = counted.get(rule, 0) + 1
    assert reasons == counted


def test_every_mask_rule_can_refuse_a_row():
    """The random table is rich enough that the comparison means something."""
    refused: set[str] = set()
    for model in (MOE, DENSE):
        for framework in ("megatron-core", "megatron-lm"):
            for automatic in (True, False):
                table = random_table(4000, seed=1)
                refused |= set(
                    legal_mask(
                        model, None, JOB, table, Stack(framework=framework), automatic_split=automatic
                    )[1]
                )
    assert {
        "world-divides-dense-grid", "world-divides-expert-grid", "tp-divides-heads", "ep-needs-experts",
        "ep-divides-experts", "sp-needs-tp", "moe-tp-needs-sp", "cp-divides-sequence", "pp-divides-layers",
        "vpp-divides-layers", "gbs-divides", "interleaving-last-group", "a2a-divides-heads",
    } <= refused  # fmt: skip


def test_a_hundred_thousand_layouts_in_under_a_third_of_a_second():
    table = random_table(100_000)
    best = min(_seconds(table) for _ in range(3))
    assert best < 0.3


def _seconds(table: LayoutTable) -> float:
    start = time.perf_counter()
    legal_mask(MOE, None, JOB, table, Stack())
    return time.perf_counter() - start


def test_a_single_bad_row_is_named():
    table = random_table(1, executions=(Execution(),)).rows(slice(0, 1))
    fields = {name: np.array([value]) for name, value in {
        "world": 256, "gbs": 256, "tp": 1, "pp": 4, "vpp": 1, "cp": 1, "ep": 48, "etp": 1, "mbs": 1,
    }.items()}  # fmt: skip
    row = LayoutTable(
        **fields, sp=np.array([False]), execution=np.zeros(1, int), executions=table.executions,
        split=np.zeros(1, int), splits=table.splits,
    )  # fmt: skip
    legal, reasons = legal_mask(MOE, None, JOB, row, Stack())
    assert not legal[0]
    assert reasons == {"world-divides-expert-grid": 1, "ep-divides-experts": 1}
