#!/bin/bash
# start one torchrun on every host
HOSTS=(gpu-01 gpu-02 gpu-03 gpu-04)
MASTER=${HOSTS[0]}
NNODES=${#HOSTS[@]}
TP=8
PP=2
RANK=0
for host in "${HOSTS[@]}"; do
  ssh -o StrictHostKeyChecking=no -n "$host" "cd $PWD && export CUDA_DEVICE_MAX_CONNECTIONS=1 && \
    torchrun --nnodes $NNODES --node_rank $RANK --nproc_per_node 8 --master_addr $MASTER --master_port 29501 \
    pretrain_gpt.py --num-layers 40 --hidden-size 5120 --num-attention-heads 40 --seq-length 4096 \
    --max-position-embeddings 4096 --tensor-model-parallel-size $TP --pipeline-model-parallel-size $PP --sequence-parallel \
    --micro-batch-size 1 --global-batch-size 128 --bf16 --use-distributed-optimizer" &
  RANK=$((RANK + 1))
done
wait
