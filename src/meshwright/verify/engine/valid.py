"""Whether a plan can take its first step: config, groups, batch, sequence, schedule."""

from __future__ import annotations

from typing import Any

import torch

from meshwright.verify.engine import build, patches, world


class FirstForward(Exception):  # noqa: N818 - a signal, not an error
    """The schedule got as far as its first forward pass."""


def check(request: dict[str, Any]) -> None:
    """Nothing when the plan starts; raises the engine's own exception where it does not.

    request  world, mesh, config, model; and for the first step seq_length, micro_batch_size,
             global_batch_size (0 leaves the batch out)
    """
    import torch

    patches.Device.current = torch.device("meta")
    world.enter(request["world"], 0, request["mesh"])
    config = build.make_config(request["config"])
    if config.num_moe_experts and config.tensor_model_parallel_size > 1 and not config.sequence_parallel:
        first_experts(request)
    if config.attention_output_gate and config.num_query_groups < config.tensor_model_parallel_size:
        first_attention(request)
    sequence(config, request["seq_length"], request["micro_batch_size"])
    if request["global_batch_size"]:
        schedule(config, request)


def first_experts(request: dict[str, Any]) -> None:
    """What the experts refuse at their first forward pass: tensor without sequence parallelism."""
    import torch
    from megatron.core.transformer.moe.moe_layer import MoELayer

    config, chunks = build.build_rank(request)
    modules = [module for chunk in chunks for module in chunk.modules() if isinstance(module, MoELayer)]
    for module in modules[:1]:
        module(torch.empty(1, 1, config.hidden_size, device="meta"))


def first_attention(request: dict[str, Any]) -> None:
    """What attention refuses at its first forward pass: its output gate, where key heads are copied."""
    import torch
    from megatron.core.transformer.attention import SelfAttention

    config, chunks = build.build_rank(request)
    modules = [module for chunk in chunks for module in chunk.modules() if isinstance(module, SelfAttention)]
    for module in modules[:1]:
        module(torch.empty(2, 1, config.hidden_size, device="meta"), None)


def sequence(config: Any, length: int, micro_batch: int) -> None:
    """Cutting the sequence as the data loader (context) and the embedding (sequence parallelism) do."""
    from megatron.core import parallel_state, tensor_parallel
    from megatron.core.utils import get_batch_on_this_cp_rank

    tokens = torch.empty(micro_batch, length, dtype=torch.long, device="meta")
    try:
        cut = get_batch_on_this_cp_rank({"tokens": tokens})["tokens"]
    except RuntimeError as error:
        cp = parallel_state.get_context_parallel_world_size()
        message = f"a sequence of {length} cannot be cut into 2 x cp {cp} chunks: {error}"
        raise ValueError(message) from None
    if config.sequence_parallel:
        hidden = torch.empty(cut.shape[1], micro_batch, 1, device="meta")
        tensor_parallel.scatter_to_sequence_parallel_region(hidden)


def schedule(config: Any, request: dict[str, Any]) -> None:
    """Number of micro-batches, then the pipeline schedule up to the first forward pass of rank 0."""
    from megatron.core import num_microbatches_calculator, parallel_state
    from megatron.core.pipeline_parallel import get_forward_backward_func

    num_microbatches_calculator.init_num_microbatches_calculator(
        rank=1,  # rank 0 would print
        rampup_batch_size=None,
        global_batch_size=request["global_batch_size"],
        micro_batch_size=request["micro_batch_size"],
        data_parallel_size=parallel_state.get_data_parallel_world_size(),
        decrease_batch_size_if_needed=False,
    )

    def forward_step(*_: Any) -> Any:
        raise FirstForward

    chunks = [Stub(config) for _ in range(config.virtual_pipeline_model_parallel_size or 1)]
    several = config.virtual_pipeline_model_parallel_size is not None
    try:
        get_forward_backward_func()(
            forward_step_func=forward_step,
            data_iterator=[None] * len(chunks) if several else None,
            model=chunks if several else chunks[0],
            num_microbatches=num_microbatches_calculator.get_num_microbatches(),
            seq_length=request["seq_length"],
            micro_batch_size=request["micro_batch_size"],
            forward_only=False,
        )
    except FirstForward:
        return


class Stub(torch.nn.Module):
    """The least that a schedule asks of a model before its first forward pass."""

    def __init__(self, config: Any) -> None:
        from megatron.core.enums import ModelType

        super().__init__()
        self.config = config
        self.model_type = ModelType.encoder_or_decoder
        self.vp_stage = None

    def set_input_tensor(self, tensor: Any) -> None:
        return None
