#!/usr/bin/env bash
# DeepSeek-MoE-like on 2 boxes
set -a
CUDA_DEVICE_MAX_CONNECTIONS=1
NVTE_FLASH_ATTN=1
set +a
tp=2 pp=1 ep=8
: "${seq:=4096}" "${mbs:=4}" "${nodes:=2}"
until [ $((64 % ep)) -eq 0 ]; do ep=$((ep-1)); done

config() {
cat <<END
--num-layers 28
--hidden-size 2048
--num-attention-heads 16
--ffn-hidden-size 10944
--moe-ffn-hidden-size 1408
--num-experts 64
--moe-router-topk 6
--moe-router-dtype fp32
--moe-shared-expert-intermediate-size 2816
--moe-layer-freq ([0]*1+[1]*27)
--moe-grouped-gemm
--seq-length $seq
--max-position-embeddings $seq
--micro-batch-size $mbs
--global-batch-size $((nodes*8/tp*mbs*8))
--tensor-model-parallel-size $tp
--pipeline-model-parallel-size $pp
--expert-model-parallel-size $ep
--expert-tensor-parallel-size 1
--swiglu
--disable-bias-linear
--bf16
#--sequence-parallel
--use-distributed-optimizer
END
}
set -f
options=( $(config | grep -v '^#') )
set +f
torchrun --nnodes $nodes --nproc_per_node 8 pretrain_gpt.py "${options[@]}"
