"""Continue Qwen3-30B-A3B with Megatron Bridge from Hugging Face weights; torchrun on 32 GPUs."""
import argparse
import os

import torch
from megatron.bridge import AutoBridge
from megatron.bridge.training.config import (
    CheckpointConfig, ConfigContainer, DistributedDataParallelConfig, GPTDatasetConfig, OptimizerConfig, TrainingConfig,
)
from megatron.bridge.training.pretrain import pretrain


def parse():
    p = argparse.ArgumentParser()
    p.add_argument("--hf-path", default="Qwen/Qwen3-30B-A3B")
    p.add_argument("--tp", "--tensor-parallel", dest="tp", type=int, default=2)
    p.add_argument("--pp", type=int, default=2)
    p.add_argument("--ep", type=int, default=8)
    p.add_argument("--long", action="store_true", help="long context")
    return p.parse_args()


def main():
    args = parse()
    bridge = AutoBridge.from_hf_pretrained("Qwen/Qwen3-30B-A3B", torch_dtype=torch.bfloat16)
    provider = bridge.to_megatron_provider(load_weights=True)
    provider.tensor_model_parallel_size = args.tp
    provider.pipeline_model_parallel_size = args.pp
    provider.expert_model_parallel_size = args.ep
    provider.expert_tensor_parallel_size = 1
    provider.sequence_parallel = args.tp > 1
    if args.long:
        provider.context_parallel_size = 4
        seq = 32768
    else:
        seq = 8192
    provider.seq_length = 8192
    common = dict(micro_batch_size=1, global_batch_size=int(os.environ.get("GBS", "256")))
    cfg = ConfigContainer(
        model=provider,
        train=TrainingConfig(train_iters=1000, **common),
        optimizer=OptimizerConfig(optimizer="adam", lr=1e-5, use_distributed_optimizer=True),
        ddp=DistributedDataParallelConfig(use_distributed_optimizer=True, overlap_grad_reduce=True),
        dataset=GPTDatasetConfig(seq_length=8192, random_seed=1234),
        checkpoint=CheckpointConfig(save="/ckpt"),
    )
    pretrain(cfg, None)


if __name__ == "__main__":
    main()
