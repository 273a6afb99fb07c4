#!/bin/bash
export CUDA_DEVICE_MAX_CONNECTIONS=1
NNODES=${NNODES:-4}
GPUS_PER_NODE=${GPUS_PER_NODE:-8}
# attention TP4, experts ETP1 EP16 over the same ranks
TP=${TP:-4}; PP=${PP:-2}; EP=${EP:-16}; ETP=${ETP:-1}; CP=${CP:-1}; VPP=${VPP:-3}

MODEL_ARGS="
  --num-layers 24
  --hidden-size 2560
  --ffn-hidden-size 6912
  --num-attention-heads 20
  --seq-length 4096
  --max-position-embeddings 4096
  --swiglu --disable-bias-linear --normalization RMSNorm
  --untie-embeddings-and-output-weights
"
MOE_ARGS="
  --num-experts 64
  --moe-ffn-hidden-size 1280
  --moe-router-topk 6
  --moe-grouped-gemm
  --moe-token-dispatcher-type flex
  --moe-enable-deepep
  --moe-router-dtype fp32
"
if [ "${VPP}" -gt 1 ] ; then
  VPP_ARG="--num-virtual-stages-per-pipeline-rank ${VPP}"
else
  VPP_ARG=""
fi
[ "$TP" != "1" ] && SP="--sequence-parallel" || SP=""

torchrun --nnodes ${NNODES} --nproc_per_node ${GPUS_PER_NODE} --node_rank ${NODE_RANK:-0} \
  --master_addr ${MASTER_ADDR:-127.0.0.1} --master_port 29500 \
  pretrain_gpt.py ${MODEL_ARGS} ${MOE_ARGS} ${VPP_ARG} ${SP} \
  --tensor-model-parallel-size ${TP} --pipeline-model-parallel-size ${PP} \
  --expert-model-parallel-size ${EP} --expert-tensor-parallel-size ${ETP} --context-parallel-size ${CP} \
  --micro-batch-size 1 --global-batch-size 512 --bf16 --use-distributed-optimizer
