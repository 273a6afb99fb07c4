"""Fine-tune Qwen3 32B on 16 GPUs."""
from megatron.bridge.recipes.qwen import qwen3_32b_sft_config
from megatron.bridge.training.finetune import finetune
from megatron.bridge.training.gpt_step import forward_step

NUM_NODES, GPUS = 2, 8


def main(tp: int = 8, pp: int = 2) -> None:
    config = qwen3_32b_sft_config()
    model = config.model
    model.tensor_model_parallel_size = tp
    model.pipeline_model_parallel_size = pp
    model.sequence_parallel = tp > 1
    config.model.seq_length = config.dataset.seq_length = 2 * 2048
    config.train.micro_batch_size, config.train.global_batch_size = 1, 64
    config.ddp.overlap_grad_reduce = not False
    finetune(config=config, forward_step_func=forward_step)


if __name__ == "__main__":
    main()
