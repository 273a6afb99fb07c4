#!/bin/sh
# quick debug on one box of 4 x A100-40G
export CUDA_VISIBLE_DEVICES=0,1,2,3
CUDA_DEVICE_MAX_CONNECTIONS=1 \
torchrun --standalone --nproc_per_node=$(echo $CUDA_VISIBLE_DEVICES | tr ',' '\n' | wc -l) \
  pretrain_gpt.py --num-layers 8 --hidden-size 1024 --num-attention-heads 16 --seq-length 1024 \
  --max-position-embeddings 1024 --micro-batch-size 2 --global-batch-size 16 \
  --tensor-model-parallel-size 2 --pipeline-model-parallel-size 2 --sequence-parallel --mock-data \
  --tokenizer-type NullTokenizer --vocab-size 32000 --bf16 --train-iters 10
