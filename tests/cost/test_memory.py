"""Memory of whole ranks: against hand-worked numbers, published runs and reported cases."""

import numpy as np
import pytest

from meshwright.cluster.parse import parse_cluster
from meshwright.cost.accounts import accounts
from meshwright.cost.attention_memory import mixer_part
from meshwright.cost.memory import memory
from meshwright.cost.question import Question
from meshwright.cost.stages import all_stages, distinct_stages
from meshwright.job.spec import Execution, Job, Recompute
from meshwright.layout.layout import Layout
from meshwright.layout.pipeline import split_table
from meshwright.layout.table import LayoutTable
from meshwright.model.catalog import find

GB, GIB = 1e9, 2**30
FULL = Recompute(granularity="full", num_layers=1)


def test_the_state_of_the_guides_70b_example_is_39_4_gb(ask):
    """TP4 PP4 DP4 with the distributed optimizer: 70e9 / 16 * (6 + 12/4) bytes, the mean of the stages."""
    asked = ask("llama-3-70b", "64xH100", Layout(tp=4, pp=4, sp=True), batch=256)
    states = [asked.state(stage) for stage in range(4)]
    of_70_billion = np.mean(states) * 70 / 70.55
    assert of_70_billion == pytest.approx(39.4 * GB, rel=0.002)
    assert states[0] > states[1]  # the embedding


def test_a_layer_of_llama_3_70b_adds_up_by_hand(ask):
    """8,192 tokens on TP 8 with sequence parallelism: 268.26 MiB a layer, 4 of them in flight on stage 0."""
    asked = ask("llama-3-70b", "64xH100", Layout(tp=8, pp=4, sp=True), seq=8192, batch=64)
    assert asked.memory.terms["activations"][0, 0] / (4 * 20 * 2**20) == pytest.approx(268.26, abs=0.01)


SIMUMAX = {
    (1, 2, 1, 4096, 16): 66.55,
    (2, 1, 1, 4096, 16): 60.68,
    (4, 1, 1, 4096, 8): 39.07,
    (8, 1, 1, 4096, 4): 28.29,
    (2, 1, 4, 32768, 4): 68.43,
    (1, 1, 8, 32768, 4): 104.51,
    (2, 1, 4, 131072, 4): 112.67,
    (1, 1, 8, 131072, 4): 147.99,
}
"""(tp, pp, cp, seq, gbs): allocated GiB of Llama-3-70B cut to 12 layers on 8 B200.

Source: SimuMax, docs/b200/b200_release_v1.2_summary.md (Megatron-LM 23e00ed0, Transformer Engine 2.11).
"""


def test_the_b200_sweeps_are_met_within_two_per_cent(ask):
    from meshwright.planner.batch import with_layers

    model = with_layers(find("llama-3-70b"), 12)
    errors = []
    for (tp, pp, cp, seq, gbs), measured in SIMUMAX.items():
        layout = Layout(tp=tp, pp=pp, cp=cp, sp=tp > 1)
        execution = Execution(overlaps=frozenset({"dp"}), cp_comm="a2a")
        asked = ask(model, "8xB200", layout, seq=seq, batch=gbs, execution=execution)
        errors.append(float(asked.memory.allocated[0].max()) / (measured * GIB) - 1)
    assert np.median(np.abs(errors)) < 0.01
    assert np.abs(errors).max() < 0.02


@pytest.mark.parametrize(("modules", "measured"), [((), 61.35), (("core_attn",), 63.14)])
def test_recompute_of_fused_attention_raises_the_peak_of_qwen3_30b(ask, modules, measured):
    """16 H100, all-to-all, bf16. Source: Megatron-Bridge pull request 3880 (decimal GB)."""
    granularity = "selective" if modules else "none"
    execution = Execution(recompute=Recompute(granularity=granularity, modules=modules))
    asked = ask("qwen3-30b-a3b", "16xH100", Layout(ep=16), batch=1024, execution=execution, grad_dtype="bf16")
    assert asked.memory.allocated[0, 0] / GB == pytest.approx(measured, rel=0.01)


def test_experts_with_one_replica_keep_18_bytes_a_parameter(ask):
    """Qwen3-30B-A3B on 8 GPUs with EP 8: nothing shares the experts' state, 68-70 GB before activations."""
    asked = ask("qwen3-30b-a3b", "8xA100", Layout(tp=4, ep=8, sp=True), batch=4,
                execution=Execution(recompute=FULL))  # fmt: skip
    assert asked.state() / GB == pytest.approx(69, abs=1.5)


@pytest.mark.parametrize(
    ("model", "gpus", "layout", "seq", "batch"),
    [
        ("qwen2.5-32b", "32xA100", Layout(), 4096, 32),  # no model parallelism: 6 bytes a parameter alone
        ("megatron-7.5b", "2xL40S", Layout(pp=2), 1024, 2),  # 18 bytes a parameter at DP 1
        ("llama-2-13b", "4xA100-40GB", Layout(tp=4, sp=True), 2048, 4),  # 58 GB of state on 40 GB
        ("llama-3.3-70b", "32xH100", Layout(pp=8, mbs=4), 1024, 32),  # a recipe for 141 GB cards
    ],
)
def test_jobs_that_ran_out_of_memory_do_not_fit(ask, model, gpus, layout, seq, batch):
    assert ask(model, gpus, layout, seq=seq, batch=batch).memory.verdicts()[0] == "does-not-fit"


def test_nemotron_ultra_needs_fsdp_on_80_gb_cards(ask):
    """550B on 256 H100 with TP4 EP64, as published; without FSDP it does not fit."""
    layout = Layout(tp=4, ep=64, sp=True)
    for fsdp, verdict in ((False, "does-not-fit"), (True, "fits")):
        execution = Execution(recompute=FULL, fsdp=fsdp)
        asked = ask("nemotron-3-ultra-550b-a55b", "256xH100", layout, batch=256, execution=execution)
        assert asked.memory.verdicts()[0] == verdict


def test_fp8_without_fp8_weights_takes_more_than_bf16(ask):
    """The bf16 weight stays, a quantised copy and its transpose come on top of it (Hopper: 2 bytes more)."""
    plain = ask("llama-2-7b", "8xH100", Layout())
    fp8 = ask("llama-2-7b", "8xH100", Layout(), precision="fp8", execution=Execution(fp8_param_gather=False))
    more = fp8.memory.terms["weights"] - plain.memory.terms["weights"]
    linear = 32 * (4 * 4096**2 + 3 * 4096 * 11008)
    assert more[0, 0] == 2 * linear
    assert fp8.memory.peak[0] > plain.memory.peak[0]


def test_a_tied_embedding_is_on_the_first_and_the_last_stage(ask):
    """Qwen3-4B ties 151,936 x 2,560: with PP 4 its last stage holds a copy, and its state."""
    asked = ask("qwen3-4b", "4xH100", Layout(pp=4), batch=4)
    held = asked.memory.parameters[0]
    assert held[3] - held[2] == 151936 * 2560 + 2560  # and the final norm
    assert held[0] - held[1] == 151936 * 2560


def test_the_mtp_module_brings_a_second_embedding(ask):
    """DeepSeek-V3 with the module on the last stage: 129,280 x 7,168 / TP 2 more parameters there."""
    from meshwright.layout.pipeline import PipelineLayout

    pipeline = PipelineLayout.parse("Et*4|(t*4|)*14tmL", 16)
    asked = ask(
        "deepseek-v3", "1024xH100", Layout(tp=2, pp=16, ep=64, sp=True), batch=8192, pipeline=pipeline
    )
    copy = 129280 * 7168 // 2
    layer = float(asked.memory.parameters[0, 1]) / 4
    last = float(asked.memory.parameters[0, 15])
    assert last - 2 * copy == pytest.approx(2 * layer + 2 * 7168**2 / 2, rel=0.001)


def test_with_mtp_the_final_norm_is_beside_the_last_decoder_layer(ask):
    """What Megatron Core 0.16.1 built of DeepSeek-V3 on stages 12 to 15, the last with MTP and loss alone."""
    from meshwright.layout.pipeline import PipelineLayout

    pipeline = PipelineLayout.parse("Et*5|(t*4|)*14mL", 16)
    asked = ask(
        "deepseek-v3", "1024xH100", Layout(tp=2, pp=16, ep=64, sp=True), batch=8192, pipeline=pipeline
    )
    built = [1204617216, 1204617216, 1204624384, 1279235072]
    assert asked.memory.parameters[0, 12:].tolist() == built


def many(question: Question, layouts: list[Layout], execution: Execution) -> LayoutTable:
    splits, codes = split_table(
        question.model, [(one.pp, one.vpp, None, execution.recompute) for one in layouts]
    )
    names = ("tp", "pp", "vpp", "cp", "ep", "etp", "mbs")
    columns = {name: np.array([getattr(one, name) for one in layouts]) for name in names}
    count = len(layouts)
    return LayoutTable(
        world=np.full(count, question.cluster.world), gbs=np.full(count, question.job.global_batch),
        sp=np.array([one.sp for one in layouts]), execution=np.zeros(count, dtype=np.int64),
        executions=(execution,), split=codes, splits=splits, **columns,
    )  # fmt: skip


@pytest.mark.parametrize("model", ["llama-3-70b", "mixtral-8x7b"])
def test_a_table_equals_a_loop_over_its_rows(model):
    question = Question(
        model=find(model), cluster=parse_cluster("64xH100"), job=Job(seq_length=4096, global_batch=128)
    )
    moe = question.model.is_moe
    layouts = [
        Layout(tp=tp, pp=pp, vpp=vpp, cp=cp, ep=8 if moe else 1, mbs=mbs, sp=tp > 1)
        for tp in (1, 2, 8) for pp, vpp in ((1, 1), (4, 1), (4, 2), (8, 2)) for cp in (1, 2) for mbs in (1, 2)
        if 64 % (pp * np.lcm(tp * cp, 8 if moe else 1)) == 0
    ]  # fmt: skip
    execution = Execution(recompute=Recompute(granularity="selective", modules=("mlp",)))
    table = many(question, layouts, execution)
    together = memory(question, table, all_stages(table.splits))
    for row in range(len(table)):
        one = table.rows(np.array([row]))
        alone = memory(question, one, all_stages(one.splits))
        assert np.allclose(together.total[row], alone.total[0], rtol=1e-12)
        assert np.allclose(together.allocated[row], alone.allocated[0], rtol=1e-12)


def test_the_first_stage_of_equal_ones_is_the_fullest(ask):
    """What the search relies on: scoring one stage of each content finds the peak of all."""
    asked = ask("llama-3-70b", "64xH100", Layout(tp=4, pp=8, vpp=2, sp=True), batch=128)
    few = memory(asked.question, asked.table, distinct_stages(asked.table.splits))
    assert few.peak[0] == asked.memory.peak[0]


def test_terms_sum_to_the_total_and_exceed_what_is_allocated(ask):
    asked = ask("deepseek-v3", "1024xH100", Layout(tp=2, pp=16, ep=64, sp=True), batch=8192)
    used = asked.memory
    assert np.allclose(sum(used.terms.values()), used.total)
    assert (used.total > used.allocated).all()


def test_more_of_a_split_degree_never_needs_more_memory(ask):
    peaks = [
        float(ask("llama-3-70b", "64xH100", Layout(tp=tp, pp=4, sp=tp > 1)).memory.peak[0])
        for tp in (1, 2, 4, 8)
    ]
    assert peaks == sorted(peaks, reverse=True)


@pytest.mark.parametrize(
    ("execution", "job", "bytes_a_parameter"),
    [
        (Execution(), {}, 6 + 12 / 8),
        (Execution(distributed_optimizer=False), {}, 18),
        (Execution(), {"grad_dtype": "bf16"}, 4 + 12 / 8),
        (Execution(), {"optimizer": "adam-precision-aware"}, 6 + 6 / 8),
        (Execution(optimizer_instances=2), {}, 6 + 12 / 4),
        (Execution(optimizer_offload=0.5), {}, 6 + 8 / 8),
        (Execution(fsdp=True), {}, 18 / 8),
        (Execution(fsdp=True, fsdp_sharding="optim_grads"), {}, 2 + 16 / 8),
        (Execution(fsdp=True, fsdp_sharding="optim"), {}, 6 + 12 / 8),
    ],
)
def test_bytes_of_state_a_parameter_on_8_ranks(ask, execution, job, bytes_a_parameter):
    """Source: Megatron-LM, docs/user-guide/features/dist_optimizer.md, and each flag's own meaning."""
    asked = ask("llama-3-8b", "8xH100", Layout(), execution=execution, **job)
    assert asked.state() / asked.memory.parameters[0, 0] == pytest.approx(bytes_a_parameter)


def test_experts_share_their_state_over_edp_not_dp(ask):
    """Mixtral on 16 GPUs with EP 8: 2 replicas of experts, 16 of the rest."""
    asked = ask("mixtral-8x7b", "16xH100", Layout(ep=8))
    experts = 32 * 3 * 4096 * 14336
    rest = float(asked.memory.parameters[0, 0]) - experts
    assert asked.state() == pytest.approx(6 * (rest + experts) + 12 * (rest / 16 + experts / 2))


def test_lora_trains_the_adapters_alone(ask):
    """Rank 32 beside qkv, proj, fc1 and fc2 of 80 layers, split over TP 8; 2 bytes for all that is frozen."""
    asked = ask("llama-3-70b", "8xH100", Layout(tp=8, sp=True), task="lora", batch=8)
    sides = (8192 + 10240) + (8192 + 8192) + (8192 + 2 * 28672) + (28672 + 8192)
    adapters = 80 * 32 * sides / 8
    assert asked.memory.parameters[0, 0] == adapters
    assert asked.memory.terms["gradients"][0, 0] == 4 * adapters
    frozen = float(asked.memory.terms["weights"][0, 0]) - 2 * adapters
    assert frozen / GB == pytest.approx(2 * 70.55 / 8, rel=0.001)


def test_graphs_never_give_their_memory_back(ask):
    """Private pools: what graphed parts saved stays between steps, beside the optimizer's own needs."""
    none, attention, full = (
        ask("llama-3-8b", "8xH100", Layout(tp=2, sp=True), execution=Execution(cuda_graphs=scope))
        for scope in ("none", "attn", "full")
    )
    kept = [accounts(one.question, one.table, one.view) for one in (none, attention, full)]
    pools = [float(parts.pool[0, 0]) for parts in kept]
    assert pools[0] == 0 < pools[1] < pools[2]
    assert pools[2] == float(full.memory.terms["activations"][0, 0])
    for one in (attention, full):
        assert (one.memory.terms["activations"] == none.memory.terms["activations"]).all()
        assert (one.memory.allocated >= none.memory.allocated).all()


def test_a_graph_over_attention_shares_no_working_memory_with_eager_kernels(ask):
    asked = [
        ask("qwen3-30b-a3b", "8xH100", Layout(ep=8), execution=Execution(cuda_graphs=scope))
        for scope in ("none", "moe")
    ]
    kept = [accounts(one.question, one.table, one.view) for one in asked]
    apart = kept[1].resident - kept[0].resident
    layer = find("qwen3-30b-a3b").kinds[0]
    assert apart[0, 0] == float(mixer_part(kept[0].sizes, layer.mixer).working[0])


def test_a_paged_stash_keeps_the_rows_that_came_and_one_layer_of_buffers(ask):
    """Static buffers of twice the balanced share keep twice the experts' rows; a stash of 1.0 keeps one."""

    def kept(**flags):
        flags = {"dispatcher": "hybridep", "grouped_mlp_fusion": True, **flags}
        asked = ask("qwen3-30b-a3b", "8xH100", Layout(ep=8), execution=Execution(**flags))
        return float(asked.memory.terms["activations"][0, 0])

    row = 2 * 2048 + 2 * 2 * 768 + 2 * 768
    rows = 48 * 8 * 4096
    assert kept(rank_capacity=2.0) - kept() == rows * row
    assert kept(rank_capacity=2.0, paged_stash=1.0) == kept()
