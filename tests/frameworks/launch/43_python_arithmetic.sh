#!/bin/bash
# sizes worked out with whatever is at hand
NODES=6
TP=4; PP=3; CP=2
WORLD=$(python3 -c "print($NODES * 8)")
DP=$(echo "$WORLD / ($TP * $PP * $CP)" | bc)
GBS=$(awk -v dp="$DP" 'BEGIN { print dp * 2 * 48 }')
LAYERS=$(expr $PP \* 16)
SEQ=$(( 1 << 15 ))
HIDDEN=$(python - <<PY
heads = 48
print(heads * 128)
PY
)
FFN=$(printf '%d' $((HIDDEN * 8 / 3 / 256 * 256)))
export CUDA_DEVICE_MAX_CONNECTIONS=1
torchrun --nnodes $NODES --nproc-per-node 8 pretrain_gpt.py \
  --num-layers $LAYERS --hidden-size $HIDDEN --num-attention-heads 48 --ffn-hidden-size $FFN \
  --group-query-attention --num-query-groups 8 \
  --seq-length $SEQ --max-position-embeddings $SEQ \
  --tensor-model-parallel-size $TP --pipeline-model-parallel-size $PP --context-parallel-size $CP \
  --sequence-parallel --micro-batch-size 2 --global-batch-size $GBS \
  --swiglu --bf16 --use-distributed-optimizer --recompute-granularity full --recompute-method uniform --recompute-num-layers 1
