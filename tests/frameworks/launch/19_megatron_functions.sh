#!/bin/bash
# shared launcher with functions; run: ./19_megatron_functions.sh
set -eo pipefail

log() { printf '[%s] %s\n' "$(date +%T)" "$*" >&2; }

cluster() {
  local kind=${1:?kind of cluster}
  case $kind in
    small) NODES=1 ;;
    medium) NODES=8 ;;
    large|huge) NODES=32 ;;
    *) log "unknown $kind"; return 1 ;;
  esac
  WORLD=$((NODES * 8))
}

model_args() {
  local -i layers=$1 hidden=$2 heads=$3
  ARGS=(--num-layers $layers --hidden-size $hidden --num-attention-heads $heads
        --ffn-hidden-size $((hidden * 4)) --seq-length ${SEQ:=4096} --max-position-embeddings $SEQ)
}

parallel_args() {
  local tp=$1 pp=$2
  ARGS+=(--tensor-model-parallel-size=$tp --pipeline-model-parallel-size=$pp)
  if ((tp>1)); then ARGS+=(--sequence-parallel); fi
  if [ $pp -ge 4 ]; then ARGS+=(--num-layers-per-virtual-pipeline-stage=2); fi
}

main() {
  cluster "${CLUSTER:-medium}"
  model_args 64 8192 64
  parallel_args 8 4
  local mbs=1 accumulate=32
  local dp=$((WORLD/8/4))
  ARGS+=(--micro-batch-size $mbs --global-batch-size $((dp*mbs*accumulate)))
  log "starting $WORLD ranks: ${ARGS[*]}"
  CUDA_DEVICE_MAX_CONNECTIONS=1 torchrun --nnodes=$NODES --nproc-per-node=8 \
    "${MEGATRON:-/opt/megatron-lm}/pretrain_gpt.py" "${ARGS[@]}" --bf16 --use-distributed-optimizer "$@"
}

main "$@"
