#!/usr/bin/bash
# CONFIG_FILE=... NGPU=8 ./run_train.sh --parallelism.tensor_parallel_degree 8
set -ex
NGPU=${NGPU:-"8"}
export LOG_RANK=${LOG_RANK:-0}
CONFIG_FILE=${CONFIG_FILE:-"./configs/llama3_70b.toml"}
TRAIN_FILE=${TRAIN_FILE:-"torchtitan.train"}

PYTORCH_CUDA_ALLOC_CONF="expandable_segments:True" \
torchrun --nproc_per_node=${NGPU} --nnodes=${NNODE:-8} --rdzv_backend c10d --rdzv_endpoint="${HEAD:-localhost}:0" \
--local-ranks-filter ${LOG_RANK} --role rank --tee 3 \
-m ${TRAIN_FILE} --job.config_file ${CONFIG_FILE} --training.local_batch_size 4 "$@"
