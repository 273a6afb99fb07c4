#!/bin/bash
# submits one job per sequence length
for SEQ in 4096 32768; do
CP=$(( SEQ / 8192 )); [ $CP -lt 1 ] && CP=1
sbatch <<EOT
#!/bin/bash
#SBATCH --nodes=4
#SBATCH --gpus-per-node=8
#SBATCH --ntasks-per-node=8
export CUDA_DEVICE_MAX_CONNECTIONS=1
srun --cpu-bind=none python pretrain_gpt.py --num-layers 32 --hidden-size 4096 --num-attention-heads 32 \
  --group-query-attention --num-query-groups 8 --swiglu --seq-length $SEQ --max-position-embeddings $SEQ \
  --tensor-model-parallel-size 2 --context-parallel-size $CP --sequence-parallel \
  --micro-batch-size 1 --global-batch-size 128 --bf16 --use-distributed-optimizer
EOT
done
