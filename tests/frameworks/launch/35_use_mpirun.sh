#!/usr/bin/env bash
# GPT 22B, started with Open MPI on the hosts of the reservation
set -euo pipefail
IFS=$'\n\t'

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
HOSTS="dgx01 dgx02 dgx03 dgx04"
slots=8
hostlist=""
n=0
for h in ${HOSTS// /$'\n'}; do
  hostlist+="${hostlist:+,}$h:$slots"
  ((++n))
done
np=$(( n * slots ))

declare -a mpi=(
  --oversubscribe -np "$np" -N "$slots"
  -H "$hostlist"
  -x LD_LIBRARY_PATH -x PATH -x NCCL_DEBUG=WARN
  -x CUDA_DEVICE_MAX_CONNECTIONS=1
)
model="--num-layers=48
--hidden-size=6144
--num-attention-heads=64
--seq-length=2048
--max-position-embeddings=2048"
train="--micro-batch-size=4
--global-batch-size=1024
--train-iters=1000
--lr=1.0e-4
--bf16
--tensor-model-parallel-size=8
--pipeline-model-parallel-size=1
--sequence-parallel
--recompute-granularity=selective
--use-distributed-optimizer"

mpirun "${mpi[@]}" python "$here/../pretrain_gpt.py" --use-mpi $model $train \
  --mock-data --tokenizer-type NullTokenizer --vocab-size 51199
