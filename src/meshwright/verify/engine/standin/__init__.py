"""A stand-in for Transformer Engine that runs on CPUs.

Megatron Core builds its production layers from Transformer Engine's modules, which need a GPU. The
modules here have the same names, parameters, attributes and collectives, compute the same functions
with plain torch, and keep for the backward pass the tensors that Transformer Engine keeps. With them
in place Megatron Core takes its Transformer Engine code paths unchanged.

Source of what is saved: TransformerEngine, transformer_engine/pytorch/module/{linear,layernorm_linear,
grouped_linear}.py, attention/dot_product_attention, attention/rope.py, cross_entropy.py (2.x).
"""

from meshwright.verify.engine.standin.install import VERSION, install, triton_in_sight

__all__ = ["VERSION", "install", "triton_in_sight"]
