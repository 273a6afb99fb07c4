#!/bin/bash
# Megatron-DeepSpeed, BLOOM-like; ZeRO 1
MODEL_SIZE=7b1
NUM_GPUS=8
NUM_NODES=$(cat <<< 4)
GLOBAL_BATCH=512
MICRO=2
case $MODEL_SIZE in
  1b3) NL=24; HS=2048; NH=16;;
  7b1) NL=30; HS=4096; NH=32;;
esac
TP=2
PP=2
ZERO=1
config_json="./ds_config.$$.json"
cat <<EOT > $config_json
{
  "train_micro_batch_size_per_gpu": $MICRO,
  "train_batch_size": $GLOBAL_BATCH,
  "gradient_clipping": 1.0,
  "zero_optimization": { "stage": $ZERO },
  "bf16": { "enabled": true },
  "steps_per_print": 10
}
EOT
export CUDA_DEVICE_MAX_CONNECTIONS=1
deepspeed --num_gpus ${NUM_GPUS} --num_nodes ${NUM_NODES} --hostfile hostfile.txt pretrain_gpt.py \
    --tensor-model-parallel-size $TP \
    --pipeline-model-parallel-size $PP \
    --num-layers $NL \
    --hidden-size $HS \
    --num-attention-heads $NH \
    --seq-length 2048 \
    --max-position-embeddings 2048 \
    --micro-batch-size $MICRO \
    --global-batch-size $GLOBAL_BATCH \
    --train-iters 1000 \
    --bf16 \
    --deepspeed \
    --deepspeed_config ${config_json} \
    --zero-stage ${ZERO} \
    --deepspeed-activation-checkpointing --checkpoint-activations |& tee run.log
