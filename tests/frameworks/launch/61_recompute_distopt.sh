#!/bin/bash
set -o errexit -o nounset
# Falcon-like, 40 GB A100s of the small island
export CUDA_DEVICE_MAX_CONNECTIONS=1
function join_by { local IFS="$1"; shift; echo "$*"; }
function opts() {
  local prefix=$1; shift
  local kv
  for kv in "$@"; do
    case "$kv" in
      *=*) printf -- '--%s %s ' "${kv%%=*}" "${kv#*=}" ;;
      !*)  ;;
      *)   printf -- '--%s ' "$kv" ;;
    esac
  done
}
MODEL=$(opts model num-layers=60 hidden-size=8192 num-attention-heads=128 seq-length=2048 max-position-embeddings=2048)
PARALLEL=$(opts parallel tensor-model-parallel-size=8 pipeline-model-parallel-size=4 sequence-parallel !use-distributed-optimizer)
TRAIN=$(opts train micro-batch-size=1 global-batch-size=512 bf16 recompute-granularity=selective recompute-method=uniform recompute-num-layers=1)
NODELIST=$(join_by , node{1..8})
NNODES=$(awk -F, '{print NF}' <<< "$NODELIST")
torchrun --nnodes=$NNODES --nproc-per-node=8 pretrain_gpt.py $MODEL $PARALLEL $TRAIN
