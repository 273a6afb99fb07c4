#!/bin/bash
usage() { echo "usage: $0 [-t tp] [-p pp] [-n nodes] [-s seq]"; exit 1; }
tp=4 pp=1 nodes=2 seq=4096
while getopts ":t:p:n:s:h" opt; do
  case ${opt} in
    t) tp=$OPTARG ;;
    p) pp=$OPTARG ;;
    n) nodes=$OPTARG ;;
    s) seq=$OPTARG ;;
    h|\?) usage ;;
  esac
done
shift $((OPTIND - 1))
read -r -d '' MODEL <<'EOF' || true
--num-layers 32
--hidden-size 4096
--num-attention-heads 32
--group-query-attention --num-query-groups 8
--ffn-hidden-size 14336 --swiglu --normalization RMSNorm --disable-bias-linear
EOF
let gbs=nodes*64
export CUDA_DEVICE_MAX_CONNECTIONS=1
torchrun --nnodes=$nodes --nproc-per-node=gpu --rdzv-backend=c10d --rdzv-endpoint=${HEAD:-head}:29500 pretrain_gpt.py $MODEL \
  --seq-length $seq --max-position-embeddings $seq --tensor-model-parallel-size $tp --pipeline-model-parallel-size $pp \
  --micro-batch-size 1 --global-batch-size $gbs --bf16 --use-distributed-optimizer ${sp:---sequence-parallel} "$@"
