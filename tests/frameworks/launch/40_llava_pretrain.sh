#!/bin/bash
# Pretrain a multimodal model: the projector only.

export NCCL_IB_SL=1
export CUDA_DEVICE_MAX_CONNECTIONS=1
export NVTE_APPLY_QK_LAYER_SCALING=0

USER=$SLURM_JOB_USER
BATCH=$((1-1))
if [[ $BATCH -eq 0 ]]; then
    DATETIME=`date +'%y-%m-%d-%H-%M-%S'`
    MODEL_NAME="mcore-llava-${DATETIME}"
else
    MODEL_NAME="mcore-llava"
    DEBUG=0
fi

WORKSPACE="/scratch/workspace"
OUTPUT="${WORKSPACE}/output/${MODEL_NAME}"
LOGS_DIR=${OUTPUT}/logs

DEBUG=${DEBUG:-0}
if [[ $DEBUG -eq 1 ]]; then
    BZ=32
    NW=2
    HD=0.0
    LI=1
    EXTRA_ARGS=""
    NONDETERMINISTIC_ATTN=1
else
    BZ=256
    NW=2
    HD=0.1
    LI=10
    EXTRA_ARGS=""
    NONDETERMINISTIC_ATTN=1
fi

OPTIONS=" \
    --apply-layernorm-1p \
    --attention-softmax-in-fp32 \
    --use-flash-attn \
    --transformer-impl transformer_engine \
    --use-te \
    --normalization RMSNorm \
    --group-query-attention \
    --num-query-groups 8 \
    --no-masked-softmax-fusion \
    --num-workers ${NW} \
    --exit-duration-in-mins 230 \
    --use-rotary-position-embeddings \
    --no-position-embedding \
    --rotary-percent 1.0 \
    --untie-embeddings-and-output-weights \
    --disable-bias-linear \
    --hidden-dropout ${HD} \
    --tensor-model-parallel-size 4 \
    --pipeline-model-parallel-size 1 \
    --num-layers 32 \
    --hidden-size 4096 \
    --num-attention-heads 30 \
    --ffn-hidden-size 14336 \
    --seq-length 576 \
    --decoder-seq-length 1024 \
    --max-position-embeddings 4096 \
    --train-iters 20000 \
    --micro-batch-size 8 \
    --global-batch-size ${BZ} \
    --lr-decay-iters 20000 \
    --lr 0.00015 \
    --log-interval ${LI} \
    --img-h 336 --img-w 336 --patch-dim 14 \
    --language-model-type=mistral_7b \
    --disable-vision-class-token \
    ${EXTRA_ARGS} \
    --distributed-timeout-minutes 60 \
    --bf16 \
    --ckpt-format torch
"
export NVTE_ALLOW_NONDETERMINISTIC_ALGO=${NONDETERMINISTIC_ATTN}

if [[ $BATCH -eq 0 ]]; then
    torchrun --nproc_per_node 8 examples/multimodal/train.py ${OPTIONS}
else
    run_cmd="python -u examples/multimodal/train.py ${OPTIONS}"
    srun -l --verbose sh -c "${run_cmd}"
fi
