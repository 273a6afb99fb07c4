import nemo_run as run
import pytorch_lightning as pl
from megatron.core.optimizer import OptimizerConfig
from nemo import lightning as nl
from nemo.collections import llm

NODES = 16


def strategy() -> run.Config[nl.MegatronStrategy]:
    return run.Config(
        nl.MegatronStrategy,
        tensor_model_parallel_size=4,
        pipeline_model_parallel_size=8,
        virtual_pipeline_model_parallel_size=5,
        context_parallel_size=2,
        sequence_parallel=True,
        gradient_as_bucket_view=True,
    )


def trainer() -> run.Config[nl.Trainer]:
    return run.Config(nl.Trainer, accelerator="gpu", devices=8, num_nodes=NODES, max_steps=500, strategy=strategy())


def pretrain() -> run.Partial:
    return run.Partial(
        llm.pretrain,
        model=run.Config(llm.LlamaModel, config=run.Config(llm.Llama3Config70B)),
        trainer=run.Config(
            nl.Trainer,
            accelerator="gpu",
            devices=8,
            num_nodes=NODES,
            strategy=run.Config(
                nl.MegatronStrategy,
                tensor_model_parallel_size=4,
                pipeline_model_parallel_size=8,
                virtual_pipeline_model_parallel_size=5,
                context_parallel_size=2,
                sequence_parallel=True,
            ),
        ),
        data=run.Config(llm.MockDataModule, seq_length=8192, global_batch_size=1024, micro_batch_size=1),
    )
