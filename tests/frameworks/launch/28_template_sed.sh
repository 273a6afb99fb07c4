#!/bin/bash
# writes a job from a template and submits it
TP=4
PP=2
NODES=2
cat > template.sbatch <<'EOF'
#!/bin/bash
#SBATCH --nodes=@NODES@
#SBATCH --gres=gpu:8
#SBATCH --ntasks-per-node=1
export CUDA_DEVICE_MAX_CONNECTIONS=1
srun torchrun --nnodes=$SLURM_NNODES --nproc_per_node=8 --rdzv_backend=c10d --rdzv_endpoint=$(hostname):29500 \
  pretrain_gpt.py --num-layers 32 --hidden-size 4096 --num-attention-heads 32 --seq-length 2048 \
  --max-position-embeddings 2048 --tensor-model-parallel-size @TP@ --pipeline-model-parallel-size @PP@ \
  --sequence-parallel --micro-batch-size 2 --global-batch-size 256 --bf16 --use-distributed-optimizer
EOF
sed -e "s/@NODES@/$NODES/" -e "s/@TP@/${TP}/g; s/@PP@/$PP/g" template.sbatch > job.sbatch
sbatch job.sbatch
