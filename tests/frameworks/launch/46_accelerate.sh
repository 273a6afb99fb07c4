#!/bin/bash
export CUDA_DEVICE_MAX_CONNECTIONS=1
N=${SLURM_NNODES:-2}
ARGS=$(tr '\n' ' ' <<ARGS
--num-layers 28
--hidden-size 3584
--num-attention-heads 28
--group-query-attention --num-query-groups 4
--ffn-hidden-size 18944 --swiglu
--seq-length 4096 --max-position-embeddings 32768
--tensor-model-parallel-size 8 --sequence-parallel
--micro-batch-size 1 --global-batch-size 64 --bf16
ARGS
)
accelerate launch \
  --multi_gpu \
  --num_machines $N \
  --num_processes $(( N * 8 )) \
  --machine_rank ${SLURM_NODEID:-0} \
  --main_process_ip ${HEAD:-127.0.0.1} --main_process_port 29500 \
  --mixed_precision bf16 \
  pretrain_gpt.py $ARGS
