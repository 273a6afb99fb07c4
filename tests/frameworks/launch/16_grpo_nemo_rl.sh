#!/bin/bash
SCRIPT_DIR=$( cd -- "$( dirname -- "${BASH_SOURCE[0]}" )" &> /dev/null && pwd)

# ===== BEGIN CONFIG =====
NUM_NODES=4
STEPS_PER_RUN=20
MAX_STEPS=20
NUM_RUNS=$(( (MAX_STEPS + STEPS_PER_RUN - 1) / STEPS_PER_RUN ))
NUM_MINUTES=180
# ===== END CONFIG =====

cd $SCRIPT_DIR
uv run examples/run_grpo_math.py \
    --config configs/grpo_megatron.yaml \
    cluster.num_nodes=$NUM_NODES \
    grpo.max_num_steps=$MAX_STEPS \
    policy.megatron_cfg.context_parallel_size=2 \
    ++policy.megatron_cfg.expert_tensor_parallel_size=1 \
    logger.log_dir=logs \
    logger.wandb_enabled=True \
    checkpointing.enabled=True \
    $@ \
    2>&1 | tee run.log
