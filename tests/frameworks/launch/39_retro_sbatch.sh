#!/bin/bash

#SBATCH -p batch -A adlr -t 4:00:00 --nodes=8 --exclusive --mem=0 --overcommit --ntasks-per-node=8 --dependency=singleton --job-name=retro_43b

DIR=`pwd`
DATETIME=`date +'date_%y-%m-%d_time_%H-%M-%S'`
NAME="gpt-43b-shards"
mkdir -p $DIR/logs

export NCCL_IB_SL=1
export CUDA_DEVICE_MAX_CONNECTIONS=1

DATA_BLEND="0.5 /data/a_text_document \
0.25 /data/b_text_document \
0.25 /data/c_text_document "

options=" \
    --sequence-parallel \
    --recompute-activations \
    --distributed-timeout-minutes 60 \
    --use-flash-attn \
    --overlap-p2p-communication \
    --apply-layernorm-1p \
    --untie-embeddings-and-output-weights \
    --disable-bias-linear \
    --position-embedding-type rope \
    --rotary-percent 0.5 \
    --squared-relu \
    --attention-dropout 0.0 \
    --hidden-dropout 0.0 \
    --exit-duration-in-mins 220 \
    --tensor-model-parallel-size 8 \
    --pipeline-model-parallel-size 4 \
    --num-layers-per-virtual-pipeline-stage 1 \
    --num-layers 48 \
    --hidden-size 8192 \
    --num-attention-heads 64 \
    --seq-length 4096 \
    --max-position-embeddings 4096 \
    --micro-batch-size 1 \
    --global-batch-size 768 \
    --train-samples 25000000 \
    --lr 3.2e-4 \
    --data-path ${DATA_BLEND} \
    --split 99,1,0 \
    --clip-grad 1.0 \
    --bf16 \
    --use-distributed-optimizer"

run_cmd="
  cd $DIR && python -u pretrain_gpt.py ${options}"

srun -l \
     --container-image "nvcr.io/nvidia/pytorch:24.05-py3" \
     --container-mounts "/home:/home,/lustre:/lustre" \
     --output=$DIR/logs/"%x_%j_$DATETIME.log" sh -c "${run_cmd}"
set +x
