#!/bin/bash
# everything in one string for eval, with comments between the pieces
TP=2 ; PP=2 ; EP=4 ; ETP=1
NUM_GPUS="16"; GPUS_PER_NODE=8
MBS="1"; [ -n "$FAST" ] && MBS="2"
GRAD_ACC_STEPS='32'
let "DP = NUM_GPUS / (TP * PP)"
let GBS=DP*MBS*GRAD_ACC_STEPS

moe="--num-experts 16 --moe-router-topk 2 --moe-grouped-gemm"
moe="$moe --expert-model-parallel-size ${EP}"   # folded
moe+=" --expert-tensor-parallel-size "$ETP

DISTRIBUTED="torchrun --nproc_per_node ${GPUS_PER_NODE} --nnodes $((NUM_GPUS/GPUS_PER_NODE))"
flags='--bf16 --swiglu'
for f in disable-bias-linear use-distributed-optimizer 'normalization RMSNorm'; do flags="$flags --$f"; done
[ "$TP" -gt 1 -a "$PP" -gt 1 ] && sp_option="" || sp_option="--sequence-parallel"

export CUDA_DEVICE_MAX_CONNECTIONS="1"
run_cmd="${DISTRIBUTED} pretrain_gpt.py
 --num-layers 24 --hidden-size 2048 --num-attention-heads 16
 --seq-length 4096 --max-position-embeddings 4096
 --tensor-model-parallel-size ${TP} --pipeline-model-parallel-size ${PP}
 --micro-batch-size ${MBS} --global-batch-size ${GBS}
 ${moe} ${flags} ${sp_option}"
run_cmd=$(echo $run_cmd)
echo "${run_cmd}"
eval ${run_cmd}
set +x
