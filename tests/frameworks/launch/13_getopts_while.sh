#!/bin/bash
# usage: 13_getopts_while.sh [--tp N] [--pp N] [--nodes N] [--dry-run]
set -euo pipefail

TP=8
PP=2
NODES=4
DRY_RUN=0
EXTRA=()

while [[ $# -gt 0 ]]; do
  case "$1" in
    --tp) TP="$2"; shift 2 ;;
    --pp) PP="$2"; shift 2 ;;
    --nodes) NODES="$2"; shift 2 ;;
    --dry-run) DRY_RUN=1; shift ;;
    *) EXTRA+=("$1"); shift ;;
  esac
done

readonly GPUS_PER_NODE=8
declare -A WIDTH=([7b]=4096 [13b]=5120 [34b]=8192)
declare -A DEPTH=([7b]=32 [13b]=40 [34b]=48)
declare -A HEADS=([7b]=32 [13b]=40 [34b]=64)
: "${SIZE:=34b}"
: "${MBS:=1}"
GBS=$(( NODES * GPUS_PER_NODE / TP / PP * MBS * 64 ))

cmd=(
  torchrun
  --nnodes="${NODES}"
  --nproc-per-node="${GPUS_PER_NODE}"
  --node-rank="${SLURM_NODEID:-0}"
  pretrain_gpt.py
  --num-layers "${DEPTH[$SIZE]}"
  --hidden-size "${WIDTH[$SIZE]}"
  --num-attention-heads "${HEADS[$SIZE]}"
  --seq-length 4096 --max-position-embeddings 4096
  --tensor-model-parallel-size "$TP" --pipeline-model-parallel-size "$PP"
  --micro-batch-size "$MBS" --global-batch-size "$GBS"
  --bf16 --use-distributed-optimizer
  "${EXTRA[@]+"${EXTRA[@]}"}"
)
[[ "$TP" -gt 1 ]] && cmd+=(--sequence-parallel)

export CUDA_DEVICE_MAX_CONNECTIONS=1
if (( DRY_RUN )); then
  printf '%q ' "${cmd[@]}"; echo
else
  exec "${cmd[@]}"
fi
