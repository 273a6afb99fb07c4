# 2 machines x 8 H800; run on each, NODE_RANK differs
PYTORCH_CUDA_ALLOC_CONF='expandable_segments:True' \
NPROC_PER_NODE=8 \
NNODES=2 \
NODE_RANK=${NODE_RANK:-0} \
MASTER_ADDR=${MASTER_ADDR:-127.0.0.1} \
CUDA_VISIBLE_DEVICES=0,1,2,3,4,5,6,7 \
megatron sft \
    --load Qwen3-30B-A3B-Base-mcore \
    --model Qwen/Qwen3-30B-A3B-Base \
    --dataset 'liucong/Chinese-DeepSeek-R1-Distill-data-110k-SFT#20000' \
              'swift/self-cognition#1000' \
    --split_dataset_ratio 0.01 \
    --tensor_model_parallel_size 2 \
    --sequence_parallel false \
    --pipeline_model_parallel_size 2 \
    --expert_model_parallel_size 4 \
    --expert_tensor_parallel_size 1 \
    --moe_permute_fusion true \
    --moe_grouped_gemm true \
    --moe_aux_loss_coeff 1e-3 \
    --micro_batch_size 1 \
    --global_batch_size 16 \
    --packing true \
    --recompute_granularity full \
    --recompute_method uniform \
    --recompute_num_layers 1 \
    --max_epochs 3 \
    --cross_entropy_loss_fusion true \
    --lr 1e-5 --lr_warmup_fraction 0.05 --min_lr 1e-6 \
    --save megatron_output/Qwen3-30B-A3B-Base \
    --max_length 8192 \
    --attention_backend flash
