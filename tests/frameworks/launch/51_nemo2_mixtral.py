import argparse

import nemo_run as run
from nemo.collections import llm
from nemo.lightning.run.plugins import PerfEnvPlugin


def slurm(nodes: int, devices: int = 8) -> run.SlurmExecutor:
    executor = run.SlurmExecutor(
        account="lab", partition="batch", nodes=nodes, ntasks_per_node=devices,
        gpus_per_node=devices, mem="0", exclusive=True, time="04:00:00",
    )
    executor.env_vars = {"CUDA_DEVICE_MAX_CONNECTIONS": "1", "NCCL_NVLS_ENABLE": "0"}
    return executor


def main() -> None:
    recipe = llm.mixtral_8x7b.pretrain_recipe(
        name="mixtral_lab", dir="/ckpt/mixtral", num_nodes=4, num_gpus_per_node=8,
    )
    s = recipe.trainer.strategy
    s.tensor_model_parallel_size = 2
    s.pipeline_model_parallel_size = 2
    s.virtual_pipeline_model_parallel_size = 8
    s.expert_model_parallel_size = 3
    s.sequence_parallel = True
    recipe.data.micro_batch_size = 1
    recipe.data.global_batch_size = 256
    recipe.trainer.max_steps = 100
    with run.Experiment("mixtral") as exp:
        exp.add(recipe, executor=slurm(4), plugins=[PerfEnvPlugin()], name="pretrain")
        exp.run(sequential=True, detach=True)


if __name__ == "__main__":
    main()
