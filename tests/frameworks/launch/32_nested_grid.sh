#!/bin/bash
# every layout that fits eight nodes
WORLD=64
for TP in 2 8; do
  for PP in 1 4; do
    for CP in 1 2; do
      (( TP * PP * CP > 32 )) && continue
      DP=$((WORLD / (TP * PP * CP)))
      if [[ $((128 % DP)) -ne 0 ]]; then continue; fi
      SP_FLAG=$([ "$TP" -gt 1 ] && echo "--sequence-parallel")
      CUDA_DEVICE_MAX_CONNECTIONS=1 torchrun --nnodes 8 --nproc_per_node 8 pretrain_gpt.py \
        --num-layers 40 --hidden-size 5120 --num-attention-heads 40 --seq-length 8192 --max-position-embeddings 8192 \
        --tensor-model-parallel-size $TP --pipeline-model-parallel-size $PP --context-parallel-size $CP $SP_FLAG \
        --micro-batch-size 1 --global-batch-size 128 --bf16 --use-distributed-optimizer
    done
  done
done
