#!/bin/bash
# weak scaling: nodes 8 16 32, batch stays
export CUDA_DEVICE_MAX_CONNECTIONS=1
launch() {
  local nodes=$1 pp=$2; shift 2
  local gbs=24 tp=8
  local -a a
  a=(--num-layers 64 --hidden-size 8192 --num-attention-heads 64
     --tensor-model-parallel-size "$tp" --pipeline-model-parallel-size "$pp" --sequence-parallel
     --num-layers-per-virtual-pipeline-stage $(( 64 / pp / 2 ))
     --micro-batch-size 1 --global-batch-size "$gbs" --seq-length 4096 --max-position-embeddings 4096 --bf16)
  echo torchrun --nnodes "$nodes" "${a[@]}" "$@" > "log.$nodes"
  torchrun --nnodes "$nodes" --nproc-per-node 8 pretrain_gpt.py "${a[@]}" "$@"
}
for n in `seq 3 5`; do
  nodes=$((2**n))
  pp=$(( nodes >= 32 ? 2 : 8 ))
  launch $nodes $pp --use-distributed-optimizer
done
