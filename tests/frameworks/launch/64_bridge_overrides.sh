#!/bin/bash
#SBATCH --nodes 8
#SBATCH --ntasks-per-node 8
#SBATCH --gpus-per-node 8
#SBATCH --job-name bridge-qwen3
# Megatron Bridge, Qwen3 30B-A3B on H100
export CUDA_DEVICE_MAX_CONNECTIONS=1
WORKDIR=${WORKDIR:-/opt/Megatron-Bridge}
RECIPE_NAME="qwen3_30b_a3b_pretrain_config"
PARALLELISM_CONFIGS=("4,2,1,16,True")
SEQ_LENGTH=4096
for CONFIG in "${PARALLELISM_CONFIGS[@]}"; do
    IFS=',' read -r TP PP CP EP SP <<< "$CONFIG"
    CLI_OVERRIDES="
        checkpoint.save=$WORKDIR/results/${RECIPE_NAME}_tp${TP}_pp${PP}
        train.train_iters=200
        train.global_batch_size=512
        train.micro_batch_size=1
        scheduler.lr_warmup_iters=10
        dataset.sequence_length=$SEQ_LENGTH
        model.tensor_model_parallel_size=$TP
        model.pipeline_model_parallel_size=$PP
        model.context_parallel_size=$CP
        model.expert_model_parallel_size=$EP
        model.sequence_parallel=$SP
    "
    CMD="uv run --no-sync python $WORKDIR/scripts/training/run_recipe.py"
    CMD="$CMD --recipe $RECIPE_NAME"
    CMD="$CMD $(echo "$CLI_OVERRIDES" | tr '\n' ' ' | sed 's/  \+/ /g')"
    srun --container-image=nemo.sqsh --no-container-mount-home bash -c "$CMD"
done
