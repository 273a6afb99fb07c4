#!/usr/bin/env python3
"""Long-context Llama 3 8B with Megatron Bridge: torchrun --nproc-per-node 8 50_bridge_long.py"""
from __future__ import annotations

import logging
from dataclasses import dataclass
from functools import partial

from megatron.bridge.recipes.llama import llama3_8b_pretrain_config
from megatron.bridge.training.config import ConfigContainer
from megatron.bridge.training.gpt_step import forward_step
from megatron.bridge.training.mixed_precision import get_mixed_precision_config
from megatron.bridge.training.pretrain import pretrain

log = logging.getLogger(__name__)
NODES, GPUS = 4, 8
KILO = 1024


@dataclass
class Split:
    tp: int = 4
    cp: int = 3
    pp: int = 1


def configure(split: Split, *, kilo_tokens: int = 64) -> ConfigContainer:
    cfg = llama3_8b_pretrain_config()
    cfg.model.seq_length = kilo_tokens * KILO
    cfg.dataset.seq_length = cfg.model.seq_length
    cfg.model.tensor_model_parallel_size = split.tp
    cfg.model.context_parallel_size = split.cp
    cfg.model.pipeline_model_parallel_size = split.pp
    cfg.model.sequence_parallel = split.tp > 1
    cfg.train.micro_batch_size = 1
    cfg.train.global_batch_size = 64
    cfg.mixed_precision = get_mixed_precision_config("bf16_mixed")
    cfg.ddp.use_distributed_optimizer = True
    return cfg


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO)
    config = configure(Split(), kilo_tokens=128)
    config.train.global_batch_size //= 2
    config.train.train_iters = 1_000
    pretrain(config=config, forward_step_func=forward_step)
