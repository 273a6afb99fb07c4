#!/bin/bash
set -eu
# one option a line; "off" lines are taken out
mapfile -t LINES_ <<'OPTS'
--num-layers 32
--hidden-size 4096
--num-attention-heads 32
--seq-length 8192
--max-position-embeddings 8192
off --tensor-model-parallel-size 8
--tensor-model-parallel-size 2
--pipeline-model-parallel-size 2
--context-parallel-size 2
--bf16
--use-distributed-optimizer
OPTS
KEEP=()
for line in "${LINES_[@]}"; do
  [[ $line == off* ]] && continue
  KEEP+=( $line )
done
printf -v NAME 'run_%s_%03d' "llama" 7
printf -v BATCH '%s %d ' --micro-batch-size 1 --global-batch-size 96
NODES_SPEC="2x8"
NODES=${NODES_SPEC%%x*}
GPN=${NODES_SPEC##*x}
FLAGS=(sequence_parallel overlap_grad_reduce)
FLAGS=("${FLAGS[@]//_/-}")
FLAGS=("${FLAGS[@]/#/--}")
export CUDA_DEVICE_MAX_CONNECTIONS=1
torchrun --nnodes=$NODES --nproc-per-node=$GPN pretrain_gpt.py "${KEEP[@]}" $BATCH "${FLAGS[@]}" --wandb-exp-name "$NAME"
