#!/bin/sh
# plain sh; elastic: between one and four machines
: ${NPROC:=8}
if [ "x$DEBUG" = "x1" ]; then set -x; ITERS=10; else ITERS=5000; fi
MODEL="--num-layers 24 --hidden-size 2048 --num-attention-heads 16 --seq-length 2048 --max-position-embeddings 2048"
PAR="--tensor-model-parallel-size 2 --sequence-parallel"
export CUDA_DEVICE_MAX_CONNECTIONS=1
torchrun --nnodes=1:4 --nproc-per-node=$NPROC --max-restarts=3 --rdzv-id=job7 --rdzv-backend=c10d --rdzv-endpoint=head:29400 \
  pretrain_gpt.py $MODEL $PAR --micro-batch-size 4 --global-batch-size 256 --train-iters $ITERS --bf16
