#!/bin/bash
# performance recipe of Megatron Bridge on 64 H100
CONTAINER=nvcr.io/nvidia/nemo:26.04
python scripts/performance/setup_experiment.py \
  --account research --partition batch \
  --gpu h100 --num_gpus 64 --gpus_per_node 8 \
  -m llama3 -s 70b -c bf16 \
  --container_image $CONTAINER \
  --tensor_model_parallel_size 4 --pipeline_model_parallel_size 8 --virtual_pipeline_model_parallel_size 5 \
  --context_parallel_size 1 --micro_batch_size 1 --global_batch_size 128
