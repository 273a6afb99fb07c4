#!/bin/bash
# T5 "220M" on one machine, PP off
export CUDA_DEVICE_MAX_CONNECTIONS=1
GPUS_PER_NODE=8
NUM_NODES=${NUM_NODES:-1}
DISTRIBUTED_ARGS="
    --nproc_per_node $GPUS_PER_NODE \
    --nnodes $NUM_NODES \
    --node_rank ${NODE_RANK:-0} \
    --master_addr ${MASTER_ADDR:-localhost} \
    --master_port ${MASTER_PORT:-6000}
"
T5_ARGS="
    --encoder-num-layers 12 \
    --decoder-num-layers 12 \
    --hidden-size 768 \
    --num-attention-heads 12 \
    --kv-channels 64 \
    --ffn-hidden-size 3072 \
    --encoder-seq-length 512 \
    --decoder-seq-length 128 \
    --max-position-embeddings 512 \
    --micro-batch-size 64 \
    --global-batch-size 512 \
    --lr 0.0001 \
    --train-iters 1000000 \
    --lr-decay-style linear \
    --min-lr 0.00001 \
    --weight-decay 1e-2 \
    --lr-warmup-fraction .01 \
    --clip-grad 1.0 \
    --bf16 \
    --vocab-extra-ids 100 \
    --tensor-model-parallel-size 2 \
    --pipeline-model-parallel-size 1
"
torchrun $DISTRIBUTED_ARGS pretrain_t5.py $T5_ARGS \
    --tokenizer-type BertWordPieceCase --vocab-file "${1:-/data/vocab.txt}" \
    --distributed-backend nccl --log-interval 100
