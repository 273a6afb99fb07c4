"""Questions that people asked of each other, with the answers that experts gave."""

from dataclasses import replace

from meshwright.cluster.parse import parse_cluster
from meshwright.cost.calibration import default_calibration
from meshwright.cost.question import Question
from meshwright.job.precedents import precedents
from meshwright.job.spec import Job
from meshwright.job.stacks import default_execution
from meshwright.model.catalog import find
from meshwright.model.parameters import count_parameters
from meshwright.planner.fit import fewest_gpus
from meshwright.planner.search import Found, search
from meshwright.planner.space import Axes, free_flags, pipelines_of


def question(name: str, gpus: str, sequence: int, batch: int, **job: object) -> Question:
    return Question(
        model=find(name), cluster=parse_cluster(gpus), job=Job(seq_length=sequence, global_batch=batch, **job)
    )


def axes_of(asked: Question) -> Axes:
    gpu, job = asked.cluster.gpu, asked.job
    execution = default_execution(asked.stack, gpu, asked.model.is_moe, job.precision)
    return Axes(execution=execution, flags=free_flags(execution), splits="both")


def plan(asked: Question) -> Found:
    names = (asked.model.name, *asked.model.aliases)
    near = precedents(names, asked.cluster.gpu, asked.job.task, asked.cluster.world, count=20)
    kind = asked.cluster.gpu.name.split("-")[0]
    practice = [row for row in near if (row.gpu, row.gpus) == (kind, asked.cluster.world)]
    return search(asked, axes_of(asked), practice=practice)


def test_llama_3_70b_on_64_h100_is_planned_as_its_recipe():
    layout = plan(question("llama-3-70b", "64xH100", 8192, 128)).table.layout(0)
    assert (layout.tp, layout.pp, layout.vpp, layout.cp, layout.mbs) == (4, 4, 5, 2, 1)


def test_a_lighter_last_chunk_for_80_layers_over_40_chunks():
    even, automatic = pipelines_of(find("llama-3-70b"), Axes(vpp=(5,), splits="both"), 8)
    assert set(even.layers_per_chunk) == {2}
    assert (sum(automatic.layers_per_chunk), len(automatic.layers_per_chunk)) == (80, 40)
    assert automatic.layers_per_rank[-1] < 10


def test_qwen3_30b_on_32_h100_wants_experts_apart_and_no_tensor_parallelism():
    found = plan(question("qwen3-30b-a3b", "32xH100", 4096, 512))
    assert found.table.layout(0).ep in (8, 16)
    tied = [found.table.layout(row) for row in range(found.ties)]
    # published on 16 H100: TP1 PP2 EP8 in 25.09 to 26.02.01, TP1 PP1 EP16 since, within 3 % of each other
    assert any(layout.tp == 1 and layout.pp in (1, 2) and layout.ep in (8, 16) for layout in tied)
    plain = [
        found.step[row]
        for row, layout in enumerate(map(found.table.layout, range(200)))
        if layout.tp == layout.pp == 1 and layout.ep in (8, 16)
    ]
    assert min(plain) <= found.step.min() * (1 + default_calibration().time_band[1])


def test_235b_at_64k_on_256_gpus_of_96_gb_gets_a_plan_with_context_parallelism():
    asked = question("qwen3-235b-a22b", "256xH20", 65536, 128)
    found = plan(asked)
    assert found.fitting
    assert found.table.layout(0).cp >= 4
    assert found.peak[0] < asked.cluster.gpu.usable_memory


def test_lora_of_a_397b_moe_needs_no_fewer_gpus_than_its_weights():
    asked = question("qwen3.5-397b-a17b", "8xH800", 4096, 128, task="lora")
    weights = 2 * count_parameters(replace(asked.model, mtp=())).total
    assert 780e9 < weights < 810e9
    sized = fewest_gpus(asked, axes_of(asked), most=256).fits
    assert sized is not None
    world = sized[0].cluster.world
    assert 16 <= world <= 32
    assert world * asked.cluster.gpu.usable_memory > weights
