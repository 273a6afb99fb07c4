"""Real training steps on gloo ranks, beside the same steps in one process.

The request holds `plan` and `reference` (each world, mesh, config, model), `training` and `faults`: the
plan is run once as it is and once with each fault. Weights and data are the same everywhere.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import torch
import torch.distributed as dist
from megatron.core import parallel_state as state
from megatron.core.distributed import (
    DistributedDataParallel,
    DistributedDataParallelConfig,
    finalize_model_grads,
)
from megatron.core.enums import ModelType
from megatron.core.optimizer import OptimizerConfig, get_megatron_optimizer
from megatron.core.pipeline_parallel import get_forward_backward_func
from megatron.core.utils import get_batch_on_this_cp_rank

from meshwright.verify.engine import build, forked, parameters, sharding, world

FAULTS = ("sp-grad-sync", "wrong-shard", "no-finalize")


def run(request: dict[str, Any]) -> dict[str, Any]:
    """Losses and gradient norms of the reference, of the plan, and of the plan with each fault."""
    training = request["training"]
    seconds = training["seconds"]
    weights = reference_weights(request["reference"])
    answers: dict[str, Any] = {}
    runs = [("reference", request["reference"], None), ("plan", request["plan"], None)]
    runs += [(fault, request["plan"], fault) for fault in request["faults"]]
    for name, plan, fault in runs:
        results, failures = forked.run(
            plan["world"], train_rank, plan, training, weights, fault, seconds=seconds
        )
        answers[name] = {
            "ranks": results,
            "failures": [{"rank": f.rank, "status": f.status, "text": f.text} for f in failures],
        }
        if failures and not fault:
            break
    return answers


def reference_weights(reference: dict[str, Any]) -> dict[str, torch.Tensor]:
    """Built here, before the ranks are forked, so that all of them see the same memory."""
    world.enter(1, 0, reference["mesh"])
    _, (chunk,) = build.build_rank(initialised(reference))
    weights = sharding.random_weights(chunk)
    world.leave()
    return weights


def train_rank(
    plan: dict[str, Any], training: dict[str, Any], weights: dict[str, torch.Tensor], fault: str | None
) -> dict[str, Any]:
    """What one rank does: its model, its optimizer, some steps; its losses, norms and place."""
    state.initialize_model_parallel(
        create_gloo_process_groups=True, get_embedding_ranks=build.embedding_ranks(plan), **plan["mesh"]
    )
    config, chunks = build.build_rank(initialised(plan))
    for chunk in chunks:
        chunk.model_type = ModelType.encoder_or_decoder
    sharding.load(chunks, weights, config, plan["model"]["tied"], wrong=fault == "wrong-shard")
    if fault == "sp-grad-sync":
        forget_sequence_parallel(chunks)
    instances = plan["mesh"].get("num_distributed_optimizer_instances", 1)
    model, optimizer = prepare(config, chunks, training, instances)
    if fault == "no-finalize":
        config.finalize_model_grads_func = None
    history = [step(number, config, model, optimizer, training) for number in range(training["iterations"])]
    answer = {
        "rank": dist.get_rank(),
        "world": dist.get_world_size(),
        **parameters.coordinates(),
        "degrees": degrees(),
        "history": history,
        "log": log_lines(history, training) if dist.get_rank() == dist.get_world_size() - 1 else [],
    }
    dist.barrier()
    dist.destroy_process_group()
    return answer


def initialised(plan: dict[str, Any]) -> dict[str, Any]:
    """With initialisation, which also is what marks embedding and head as divided among ranks."""
    return {**plan, "config": {**plan["config"], "perform_initialization": True}}


def forget_sequence_parallel(chunks: list[Any]) -> None:
    """The fault: gradients of replicated weights are no longer summed over the sequence's ranks."""
    for chunk in chunks:
        for parameter in chunk.parameters():
            if getattr(parameter, "sequence_parallel", False):
                parameter.sequence_parallel = False


def prepare(
    config: Any, chunks: list[Any], training: dict[str, Any], instances: int
) -> tuple[list[Any], Any]:
    """Data parallelism and the optimizer around the chunks, and the hooks that the schedule calls."""
    sharded, overlap = training["distributed_optimizer"], training["overlap"]
    ddp = DistributedDataParallelConfig(
        use_distributed_optimizer=sharded,
        overlap_grad_reduce=overlap,
        overlap_param_gather=overlap and sharded,
        num_distributed_optimizer_instances=instances,
        grad_reduce_in_fp32=True,
        check_for_nan_in_grad=True,
    )
    model = [
        DistributedDataParallel(config, ddp, chunk, disable_bucketing=index > 0)
        for index, chunk in enumerate(chunks)
    ]
    optimizer = get_megatron_optimizer(
        OptimizerConfig(
            optimizer="adam",
            lr=training["lr"],
            weight_decay=0.0,
            adam_eps=1e-3,  # the usual 1e-8 turns rounding noise of near-zero gradients into whole steps
            clip_grad=1.0,
            use_distributed_optimizer=sharded,
            overlap_param_gather=overlap and sharded,
            bf16=config.bf16,
            params_dtype=config.params_dtype,
        ),
        model,
    )
    config.finalize_model_grads_func = finalize_model_grads
    config.grad_scale_func = optimizer.scale_loss
    if overlap:
        config.no_sync_func = [m.no_sync for m in model] if len(model) > 1 else model[0].no_sync
        if len(model) > 1:
            config.grad_sync_func = [m.start_grad_sync for m in model]
    for m in model:
        m.train()
    return model, optimizer


def step(
    number: int, config: Any, model: list[Any], optimizer: Any, training: dict[str, Any]
) -> tuple[float, float]:
    """One iteration: loss averaged over the global batch, and the gradient norm."""
    micro, length = training["micro_batch"], training["seq_length"]
    dp = state.get_data_parallel_world_size()
    count = training["global_batch"] // (micro * dp)
    for m in model:
        m.zero_grad_buffer()
    optimizer.zero_grad()
    several = len(model) > 1
    reports = get_forward_backward_func()(
        forward_step_func=forward_step,
        data_iterator=[batches(number, training, count) for _ in model]
        if several
        else batches(number, training, count),
        model=model if several else model[0],
        num_microbatches=count,
        seq_length=length,
        micro_batch_size=micro,
        forward_only=False,
    )
    done, norm, _ = optimizer.step()
    if not done:
        raise RuntimeError(f"iteration {number + 1}: the optimizer skipped its step (gradients not finite)")
    loss = torch.tensor([sum(float(report["loss"]) for report in reports) / count if reports else 0.0])
    if state.is_pipeline_last_stage(ignore_virtual=True):
        dist.all_reduce(loss, group=state.get_data_parallel_group())
        loss /= dp
    dist.all_reduce(loss, op=dist.ReduceOp.MAX)
    return loss.item(), float(norm)


def batches(number: int, training: dict[str, Any], count: int) -> Iterator[dict[str, torch.Tensor]]:
    """This data-parallel rank's micro-batches of iteration `number`, cut for context parallelism."""
    generator = torch.Generator().manual_seed(100 + number)
    micro, length = training["micro_batch"], training["seq_length"]
    shape = (training["global_batch"], length + 1)
    tokens = torch.randint(0, training["vocab"], shape, generator=generator)
    dp, rank = state.get_data_parallel_world_size(), state.get_data_parallel_rank()
    for index in range(count):
        first = (index * dp + rank) * micro
        rows = tokens[first : first + micro]
        batch = {
            "tokens": rows[:, :-1].contiguous(),
            "labels": rows[:, 1:].contiguous(),
            "position_ids": torch.arange(length).repeat(micro, 1),
            "loss_mask": mask(length, training["masked"]).repeat(micro, 1),
        }
        yield get_batch_on_this_cp_rank(batch)


def mask(length: int, masked: list[int]) -> torch.Tensor:
    """Weights of the labels in the loss of MTP modules.

    The engine averages that loss over each context-parallel rank's own labels. One masked label on each
    rank (the sequence's last one is masked anyhow) makes their numbers, and with them the means, equal.
    """
    weights = torch.ones(length)
    weights[masked] = 0.0
    return weights


def forward_step(data: Iterator[dict[str, torch.Tensor]], model: Any) -> Any:
    batch = next(data)
    more = {"loss_mask": batch["loss_mask"]} if model.config.mtp_num_layers else {}
    output = model(batch["tokens"], batch["position_ids"], None, labels=batch["labels"], **more)
    cp = state.get_context_parallel_world_size()

    def loss(losses: torch.Tensor) -> Any:
        mean = losses.float().sum() / (batch["tokens"].numel() * cp)
        report = mean.detach().clone()
        if cp > 1:
            dist.all_reduce(report, group=state.get_context_parallel_group())
        return mean, {"loss": report}

    return output, loss


def degrees() -> dict[str, int]:
    """The degrees as the engine's own groups have them."""
    return {
        "tp": state.get_tensor_model_parallel_world_size(),
        "pp": state.get_pipeline_model_parallel_world_size(),
        "vpp": state.get_virtual_pipeline_model_parallel_world_size() or 1,
        "cp": state.get_context_parallel_world_size(),
        "ep": state.get_expert_model_parallel_world_size(),
        "etp": state.get_expert_tensor_parallel_world_size(),
        "dp": state.get_data_parallel_world_size(),
        "edp": state.get_expert_data_parallel_world_size(),
    }


def log_lines(history: list[tuple[float, float]], training: dict[str, Any]) -> list[str]:
    """The last rank's log in Megatron-LM's words."""
    held = degrees()
    lines = [
        f"using world size: {dist.get_world_size()}, data-parallel size: {held['dp']}, "
        f"context-parallel size: {held['cp']}, tensor-model-parallel size: {held['tp']}, "
        f"pipeline-model-parallel size: {held['pp']}",
        f"engine groups: {json.dumps(held)}",
    ]
    total = training["iterations"]
    for number, (loss, norm) in enumerate(history, 1):
        lines.append(
            f" iteration {number:8d}/{total:8d} | global batch size: {training['global_batch']:5d} | "
            f"lm loss: {loss:.6E} | grad norm: {norm:.6f} | number of skipped iterations:   0 | "
            f"number of nan iterations:   0 |"
        )
    return lines
