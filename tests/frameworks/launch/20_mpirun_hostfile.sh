#!/bin/bash
HOSTS=$(cat <<EOF
node01 slots=8
node02 slots=8
node03 slots=8
node04 slots=8
EOF
)
echo "$HOSTS" > hostfile
NP=$((4 * 8))
mpirun -np $NP --hostfile hostfile --map-by ppr:8:node \
  -x CUDA_DEVICE_MAX_CONNECTIONS=1 -x NCCL_IB_HCA=mlx5 -x MASTER_ADDR=node01 \
  --mca btl_tcp_if_include eth0 \
  python3 -u pretrain_gpt.py \
  --num-layers 32 --hidden-size 4096 --num-attention-heads 32 --seq-length 2048 --max-position-embeddings 2048 \
  --tensor-model-parallel-size 2 --pipeline-model-parallel-size 4 --sequence-parallel \
  --micro-batch-size 4 --global-batch-size 250 --bf16 --use-distributed-optimizer
