#!/bin/bash
set -euo pipefail
cd "$(dirname "$0")"

export $(grep -v '^#' configs/cluster.env | grep -v '^export' | xargs)
set -a; . ./configs/cluster.env; set +a

if [[ -z ${TP+x} ]]; then TP=4; fi
if [[ -z "${PP:-}" ]]; then
  PP=2
fi
[[ -v CP ]] || CP=1
test -n "${SEQ-}" || SEQ=4096

CUDA_DEVICE_MAX_CONNECTIONS=1 \
OMP_NUM_THREADS=4 \
torchrun \
  --nnodes="$NNODES" \
  --nproc_per_node="$GPUS" \
  pretrain_gpt.py \
  --num-layers=40 --hidden-size=5120 --num-attention-heads=40 --group-query-attention --num-query-groups=8 \
  --seq-length=$SEQ --max-position-embeddings=$SEQ \
  --tensor-model-parallel-size=$TP --pipeline-model-parallel-size=$PP --context-parallel-size=$CP \
  --sequence-parallel --use-distributed-optimizer --bf16 \
  --micro-batch-size=$MBS --global-batch-size=$GBS
