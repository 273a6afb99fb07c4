#!/usr/bin/env bash
set -Eeuo pipefail
trap 'echo "failed at $LINENO" >&2' ERR
usage() { cat <<-USAGE
	usage: ${0##*/} [-h] [--size=7b|70b] [--nodes=N] [--] [megatron options]
	USAGE
	exit "${1:-0}"
}

size=70b nodes=8 mbs=1
while [[ $# -gt 0 ]]; do
  case $1 in
    --size=*)  size=${1#*=} ;;
    --nodes=*) nodes=${1#--nodes=} ;;
    --mbs=*)   mbs="${1##*=}" ;;
    -h|--help) usage ;;
    --) shift; break ;;
    *) echo "?? $1"; usage 2 ;;
  esac
  shift
done

gpn=8
world=$((nodes*gpn))
IFS=: read -r L H A G F <<< "$(
  case ${size^^} in
    7B)  echo 32:4096:32:32:11008 ;;
    70B) echo 80:8192:64:8:28672 ;;
  esac
)"
tp=$(( H > 4096 ? 8 : 2 ))
pp=$(( L >= 80 ? 4 : 1 ))
dp=$(( world / (tp * pp) ))
vpp=$(( pp > 1 ? L / pp / 4 : 0 ))
acc=$(( dp < 4 ? 128 : 32 ))
gbs=$(( dp * mbs * acc ))

args=( --num-layers $L --hidden-size $H --num-attention-heads $A --ffn-hidden-size $F )
(( G == A )) || args+=( --group-query-attention --num-query-groups $G )
args+=( --tensor-model-parallel-size $tp --pipeline-model-parallel-size $pp )
((vpp)) && args+=( --num-virtual-stages-per-pipeline-rank $vpp )
[ "$tp" != 1 ] && args+=( --sequence-parallel )
args+=( --seq-length 4096 --max-position-embeddings 4096 --swiglu --bf16 --disable-bias-linear
        --micro-batch-size $mbs --global-batch-size $gbs --use-distributed-optimizer )

export CUDA_DEVICE_MAX_CONNECTIONS=1
exec torchrun --nnodes "$nodes" --nproc-per-node "$gpn" ${MASTER_ADDR:+--master-addr "$MASTER_ADDR"} \
  pretrain_gpt.py "${args[@]}" "$@"
