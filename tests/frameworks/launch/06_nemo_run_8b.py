import argparse

import nemo_run as run
from nemo.collections import llm
from nemo.collections.llm.recipes.precision.mixed_precision import bf16_with_fp8_mixed
from nemo.lightning.pytorch.callbacks.megatron_comm_overlap import MegatronCommOverlapCallback


def slurm_executor(nodes: int = 4, devices: int = 8) -> run.SlurmExecutor:
    executor = run.SlurmExecutor(
        account="research",
        partition="batch",
        nodes=nodes,
        ntasks_per_node=devices,
        gpus_per_node=devices,
        mem="0",
        exclusive=True,
    )
    executor.env_vars = {"NCCL_NVLS_ENABLE": "0"}
    return executor


def configure_recipe(nodes: int = 4, gpus_per_node: int = 8):
    recipe = llm.llama3_8b.pretrain_recipe(
        dir="/checkpoints/llama3",
        name="llama3_8b_pretraining",
        num_nodes=nodes,
        num_gpus_per_node=gpus_per_node,
    )
    recipe.trainer.strategy.tensor_model_parallel_size = 2
    recipe.trainer.strategy.pipeline_model_parallel_size = 1
    recipe.trainer.strategy.context_parallel_size = 2
    recipe.trainer.strategy.virtual_pipeline_model_parallel_size = None
    recipe.trainer.strategy.sequence_parallel = True
    recipe.data.micro_batch_size = 1
    recipe.data.global_batch_size = 512
    recipe.data.seq_length = 8192
    recipe.trainer.max_steps = 1000
    recipe.trainer.val_check_interval = 400
    return recipe


def run_pretraining():
    recipe = configure_recipe(nodes=4, gpus_per_node=8)
    executor = slurm_executor(nodes=recipe.trainer.num_nodes, devices=recipe.trainer.devices)
    with run.Experiment("llama3-8b") as exp:
        exp.add(recipe, executor=executor, name="pretraining")
        exp.run(sequential=True, tail_logs=True)


if __name__ == "__main__":
    run_pretraining()
