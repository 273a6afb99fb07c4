#!/bin/bash
export RANK=$SLURM_PROCID LOCAL_RANK=$SLURM_LOCALID WORLD_SIZE=$SLURM_NTASKS
export CUDA_DEVICE_MAX_CONNECTIONS=1
exec python -u pretrain_gpt.py --num-layers 32 --hidden-size 4096 --num-attention-heads 32 \
  --seq-length 4096 --max-position-embeddings 4096 --tensor-model-parallel-size $TP \
  --pipeline-model-parallel-size $PP --sequence-parallel --micro-batch-size $MBS --global-batch-size $GBS \
  --bf16 --use-distributed-optimizer "$@"
