#!/usr/bin/env bash
# Throughput sweep on 64 GPUs: "tp pp cp mbs gbs"
set -uo pipefail
export CUDA_DEVICE_MAX_CONNECTIONS=1
NNODES=8

mkdir -p logs
configs=(
  "8 1 1 1 512"
  "4,2,1,2,512"
  "4:4:2:1:500"
)

for config in "${configs[@]}"; do
  IFS=' ,:' read -r tp pp cp mbs gbs <<< "$config"
  dp=$(( NNODES * 8 / (tp * pp * cp) ))
  name="t${tp}p${pp}c${cp}_m${mbs}_dp${dp}"
  echo "=== $name"
  extra=""
  (( tp > 1 )) && extra="$extra --sequence-parallel"
  [[ $pp -gt 1 ]] && extra+=" --num-layers-per-virtual-pipeline-stage $(( 48 / pp / 2 ))"
  torchrun --nnodes "$NNODES" --nproc-per-node 8 --rdzv-backend c10d --rdzv-endpoint "${HEAD_NODE:-node0}:29500" \
    pretrain_gpt.py --use-mcore-models \
    --num-layers 48 --hidden-size 8192 --num-attention-heads 64 --group-query-attention --num-query-groups 8 \
    --seq-length 8192 --max-position-embeddings 8192 --tensor-model-parallel-size "$tp" \
    --pipeline-model-parallel-size "$pp" --context-parallel-size "$cp" --micro-batch-size "$mbs" \
    --global-batch-size "$gbs" --bf16 --use-distributed-optimizer --overlap-grad-reduce --overlap-param-gather $extra \
    > "logs/$name.log" 2>&1 || echo "failed: $name" >> failures.txt
done
