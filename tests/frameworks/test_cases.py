"""Questions that people have asked about launch scripts and checkpoints, with the answers that are right.

The expected words come from the collected cases: what the answer must say to be of use.
"""

from __future__ import annotations

import pytest

from meshwright.frameworks.check import CheckResult, check_reading
from meshwright.frameworks.read import Given, read_command, read_text
from meshwright.frameworks.reading import Reading
from meshwright.frameworks.resume import resume
from meshwright.frameworks.view import Beside

DENSE = (
    "--num-layers 32 --hidden-size 4096 --num-attention-heads 32 --seq-length 4096 "
    "--max-position-embeddings 4096 --micro-batch-size 1 --global-batch-size 256 --bf16 "
    "--use-distributed-optimizer"
)
MOE = (
    "--num-layers 48 --hidden-size 2048 --num-attention-heads 32 --num-experts 128 --moe-router-topk 8 "
    "--moe-router-dtype fp32 --micro-batch-size 1 --global-batch-size 512 --seq-length 4096 "
    "--max-position-embeddings 4096 --bf16 --disable-bias-linear --use-distributed-optimizer"
)
HYBRIDEP = "--moe-token-dispatcher-type flex --moe-flex-dispatcher-backend hybridep"


def check(text: str, name: str = "run.sh", **environment: str) -> CheckResult:
    (reading,) = read_text(text, name, Given(environment=environment))
    return check_reading(reading)


def words(result: CheckResult) -> str:
    return " ".join(f"{f.message} {f.fix}" for f in result.findings)


def test_world_size_that_means_machines() -> None:
    script = (
        "export CUDA_DEVICE_MAX_CONNECTIONS=1\nNNODES=${WORLD_SIZE}\nNPROC_PER_NODE=8\n"
        f"torchrun --nnodes $NNODES --nproc_per_node $NPROC_PER_NODE pretrain_gpt.py {DENSE} "
        "--tensor-model-parallel-size 4 --sequence-parallel\n"
    )
    result = check(script, WORLD_SIZE="8")
    assert result.verdict == "warn"
    assert "64 ranks" in words(result)
    assert "WORLD_SIZE means nodes here" in words(result)
    assert result.layout()["world"] == 64


def test_ranks_per_domain_are_those_of_the_rack() -> None:
    script = (
        "# GB200\nexport NUM_OF_HYBRID_EP_RANKS_PER_NVLINK_DOMAIN=4\nexport NVLINK_DOMAIN_SIZE=72\n"
        "srun --nodes=16 --ntasks-per-node=4 --gpus-per-node=4 python pretrain_gpt.py "
        f"{MOE} --expert-model-parallel-size 32 {HYBRIDEP}\n"
    )
    result = check(script)
    assert result.verdict == "warn"
    assert "domain is 72" in words(result)


def test_hybridep_needs_its_topology() -> None:
    script = (
        "#!/bin/bash\n#SBATCH --nodes=16\n#SBATCH --gpus-per-node=gb200:4\n#SBATCH --ntasks-per-node=4\n"
        f"srun python pretrain_gpt.py {MOE} --expert-model-parallel-size 32 {HYBRIDEP}\n"
    )
    result = check(script, "run.sbatch")
    assert result.verdict == "warn"
    assert "NVLINK_DOMAIN_SIZE" in words(result)


@pytest.mark.parametrize(("gpu", "verdict"), [("H100", "invalid"), ("B200", "ok")])
def test_connections_matter_before_blackwell(gpu: str, verdict: str) -> None:
    script = (
        f"# 8 x {gpu}\ntorchrun --nproc_per_node 8 pretrain_gpt.py {DENSE} "
        "--tensor-model-parallel-size 4 --sequence-parallel\n"
    )
    result = check(script)
    assert result.verdict == verdict
    assert ("CUDA_DEVICE_MAX_CONNECTIONS" in words(result)) == (gpu == "H100")


def test_variables_set_after_cuda_has_started() -> None:
    script = (
        "import os\nimport torch\ntorch.cuda.set_device(0)\nos.environ['CUDA_DEVICE_MAX_CONNECTIONS'] = '1'\n"
    )
    result = check(script, "train.py")
    assert result.verdict == "warn"
    assert "before CUDA init" in words(result)
    assert result.findings[0].line == 4


def test_a_dumped_configuration_is_resolved() -> None:
    dumped = (
        "model:\n  _target_: megatron.bridge.models.GPTModelProvider\n  num_layers: 32\n  hidden_size: 4096\n"
        "  num_attention_heads: 32\n  tensor_model_parallel_size: 2\n  sequence_parallel: true\n"
        "  pipeline_model_parallel_size: 1\n  seq_length: 4096\n"
        "train:\n  _target_: megatron.bridge.training.config.TrainingConfig\n  micro_batch_size: 1\n"
        "  global_batch_size: 128\ndataset:\n  seq_length: 4096\nddp:\n  use_distributed_optimizer: true\n"
    )
    (reading,) = read_text(dumped, "run_config.yaml")
    result = check_reading(reading, Beside(world=16))
    assert result.verdict == "ok"
    assert result.resolved["tensor_model_parallel_size"].value == 2
    assert str(result.resolved["tensor_model_parallel_size"].source) == "run_config.yaml:6"
    assert result.layout()["num_microbatches"] == 16


def test_the_guides_own_verification_command() -> None:
    command = (
        "CUDA_VISIBLE_DEVICES=0,1,2,3 uv run python -m torch.distributed.run --nproc_per_node=4 "
        "scripts/training/run_recipe.py --recipe llama32_1b_pretrain_config "
        "model.tensor_model_parallel_size=2 model.pipeline_model_parallel_size=2 "
        "model.sequence_parallel=True train.train_iters=3 train.global_batch_size=8 "
        "train.micro_batch_size=1 scheduler.lr_warmup_iters=0 validation.eval_iters=0 "
        "validation.eval_interval=0 checkpoint.save_interval=0 logger.log_interval=1"
    )
    (reading,) = read_command(command.split())
    result = check_reading(reading)
    layout = result.layout()
    assert result.verdict == "ok"
    assert (layout["world"], layout["tp"], layout["pp"], layout["dp"]) == (4, 2, 2, 1)
    assert layout["num_microbatches"] == 8


@pytest.mark.parametrize(
    ("arguments", "gpus", "must_say"),
    [
        ("--num-layers 80 --pipeline-model-parallel-size 16 --num-layers-per-virtual-pipeline-stage 2",
         None, ["5 layers per stage", "not divisible by 2"]),
        ("--num-layers 40 --pipeline-model-parallel-size 8 --num-layers-per-virtual-pipeline-stage 2",
         None, ["5 layers per stage", "use 1 or 5"]),
        ("--num-layers 30 --pipeline-model-parallel-size 4", None, ["30 % 4", "first/last or layout"]),
        ("--num-layers 47 --decoder-last-pipeline-num-layers 23 --tensor-model-parallel-size 2 "
         "--pipeline-model-parallel-size 2 --context-parallel-size 2 --expert-model-parallel-size 8 "
         "--expert-tensor-parallel-size 1 --num-experts 64 --sequence-parallel",
         8, ["expert grid 16", "EP=4", "16 GPUs"]),
        ("--num-layers 4 --num-experts 256 --moe-router-num-groups 7 --moe-router-group-topk 4 "
         "--moe-router-topk 8", 8, ["256 % 7"]),
        ("--num-layers 32 --num-experts 8 --tensor-model-parallel-size 2 --expert-model-parallel-size 4",
         8, ["sequence-parallel"]),
    ],
)  # fmt: skip
def test_arguments_that_cannot_run(arguments: str, gpus: int | None, must_say: list[str]) -> None:
    (reading,) = read_command(["python", "pretrain_gpt.py", *arguments.split()])
    result = check_reading(reading, Beside(world=gpus))
    assert result.verdict == "invalid"
    for said in must_say:
        assert said in words(result)


@pytest.mark.parametrize(
    ("overrides", "gpus", "verdict", "etp"),
    [("model.expert_tensor_parallel_size=1", 4, "ok", 1), ("", 4, "ok", 1)],
)
def test_unset_etp_is_1_in_bridge(overrides: str, gpus: int, verdict: str, etp: int) -> None:
    command = (
        "torchrun --nproc_per_node 4 run_recipe.py --recipe my_moe_pretrain_config model.num_layers=4 "
        "model.num_moe_experts=8 model.tensor_model_parallel_size=4 model.expert_model_parallel_size=4 "
        f"model.sequence_parallel=True train.global_batch_size=8 train.micro_batch_size=1 {overrides}"
    )
    (reading,) = read_command(command.split())
    result = check_reading(reading)
    assert result.verdict == verdict
    assert result.layout()["etp"] == etp


def test_unset_etp_is_tp_in_older_bridge() -> None:
    command = (
        "torchrun --nproc_per_node 4 run_recipe.py --recipe my_moe_pretrain_config model.num_layers=4 "
        "model.num_moe_experts=8 model.tensor_model_parallel_size=4 model.expert_model_parallel_size=4 "
        "model.sequence_parallel=True train.global_batch_size=8 train.micro_batch_size=1"
    )
    (reading,) = read_command(command.split())
    result = check_reading(reading, Beside(framework_version="0.4"))
    assert result.verdict == "invalid"
    assert "4 vs 16" in words(result)


# checkpoints


def run(arguments: str) -> Reading:
    base = "--num-layers 32 --hidden-size 4096 --num-attention-heads 32 --vocab-size 32002"
    (reading,) = read_command(
        ["torchrun", "--nproc_per_node", "8", "pretrain_gpt.py", *base.split(), *arguments.split()]
    )
    return reading


def test_the_optimizer_state_does_not_follow_another_layout() -> None:
    found = resume(
        run("--pipeline-model-parallel-size 4"), run("--expert-model-parallel-size 4 --num-experts 8")
    )
    said = " ".join(
        f"{f.message} {f.fix}" for f in found.findings if f.rule == "checkpoint-optimizer-reshard"
    )
    assert "fully reshardable" in said
    assert "optimizer" in said


def test_changing_pp_warns_and_saving_it_reshardable_does_not() -> None:
    old, new = "--pipeline-model-parallel-size 4", "--pipeline-model-parallel-size 2"
    assert resume(run(old), run(new)).verdict == "warn"
    assert resume(run(f"{old} --dist-ckpt-optim-fully-reshardable"), run(new)).verdict == "ok"
    assert resume(run(old), run(f"{new} --no-load-optim")).verdict == "ok"
    assert resume(run(old), run(old)).verdict == "ok"


def test_legacy_checkpoints_keep_their_layout() -> None:
    found = resume(run("--ckpt-format torch"), run("--tensor-model-parallel-size 2 --sequence-parallel"))
    assert found.verdict == "warn"
    assert "torch_dist" in found.findings[0].fix


def test_the_padded_vocabulary_changes_with_tp() -> None:
    found = resume(run(""), run("--tensor-model-parallel-size 2 --sequence-parallel"))
    said = next(f.message for f in found.findings if f.rule == "checkpoint-padded-vocabulary")
    assert "32128 -> 32256" in said


def test_the_shape_of_the_model_must_stay() -> None:
    found = resume(run("--swiglu"), run("--num-layers 30"))
    assert found.verdict == "invalid"
    assert found.checkpoint_bytes is not None
    assert found.checkpoint_bytes > 14 * 6e9
