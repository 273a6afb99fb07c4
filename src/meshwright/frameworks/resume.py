"""Going on from a checkpoint under another layout: what reshards, what must stay, how big it is.

Sources: megatron/training/checkpointing.py; megatron/core/optimizer/distrib_optimizer.py (sharding types
of the optimizer state); Megatron-LM docs on distributed checkpoints.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from meshwright.frameworks.estimating import shape_of
from meshwright.frameworks.reading import Reading
from meshwright.frameworks.view import Beside, view_of
from meshwright.layout.rules import Finding, View

MUST_STAY = [
    "num_layers",
    "hidden_size",
    "ffn_hidden_size",
    "num_attention_heads",
    "num_query_groups",
    "kv_channels",
    "vocab_size",
    "num_moe_experts",
    "moe_ffn_hidden_size",
    "moe_shared_expert_intermediate_size",
    "mtp_num_layers",
    "swiglu",
    "normalization",
    "add_bias_linear",
    "untie_embeddings_and_output_weights",
    "multi_latent_attention",
    "q_lora_rank",
    "kv_lora_rank",
    "position_embedding_type",
]
"""Options that shape the weights."""
LAYOUT = {
    "tensor_model_parallel_size": "TP",
    "pipeline_model_parallel_size": "PP",
    "virtual_pipeline_model_parallel_size": "VPP",
    "expert_model_parallel_size": "EP",
    "expert_tensor_parallel_size": "ETP",
}
WEIGHT_BYTES = 2
STATE_BYTES = 12
"""fp32 master weight and both Adam moments of a parameter [bytes]."""
NODE_BANDWIDTH = 2e9
"""Assumed write bandwidth of one node to shared storage [bytes/s]; storage differs, so it is stated."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Resume:
    """Whether and how a run can go on from another's checkpoint."""

    findings: tuple[Finding, ...]
    changed: dict[str, tuple[Any, Any]]
    checkpoint_bytes: int | None
    save_seconds: float | None

    @property
    def verdict(self) -> str:
        severities = {finding.severity for finding in self.findings}
        return "invalid" if "error" in severities else "warn" if "warn" in severities else "ok"

    def as_dict(self) -> dict[str, Any]:
        return {
            "verdict": self.verdict,
            "findings": [finding.as_dict() for finding in self.findings],
            "changed": {name: {"old": old, "new": new} for name, (old, new) in self.changed.items()},
            "checkpoint_bytes": self.checkpoint_bytes,
            "save_seconds": self.save_seconds,
            "assumptions": [f"{NODE_BANDWIDTH / 1e9:g} GB/s of write bandwidth a node"],
        }


def resume(old: Reading, new: Reading, beside: Beside | None = None) -> Resume:
    """Compare the run that wrote a checkpoint with the run that wants to go on from it."""
    before, after = view_of(old, beside), view_of(new, beside)
    changed = {
        name: (before.options.get(name), after.options.get(name))
        for name in LAYOUT
        if _plain(before, name) != _plain(after, name)
    }
    found = [
        *_shape(before, after),
        *_format(new, before, after, changed),
        *_vocabulary(before, after),
        *_random(changed),
    ]
    model = shape_of(new, after) or shape_of(old, before)
    size = checkpoint_bytes(model) if model is not None else None
    nodes = new.launcher.nodes.value if new.launcher.nodes else None
    seconds = size / NODE_BANDWIDTH / nodes if size and isinstance(nodes, int) and nodes > 0 else None
    order = {"error": 0, "warn": 1, "advice": 2}
    return Resume(
        findings=tuple(sorted(found, key=lambda finding: order[finding.severity])),
        changed=changed,
        checkpoint_bytes=size,
        save_seconds=seconds,
    )


def checkpoint_bytes(model: Any) -> int:
    """Bytes of a checkpoint with optimizer: bf16 weights, fp32 master weights and moments."""
    from meshwright.model.parameters import count_parameters

    return count_parameters(model).everything * (WEIGHT_BYTES + STATE_BYTES)


def _plain(view: View, name: str) -> object:
    """A degree as a number; a virtual size of 1 and an unset one are the same."""
    value = view.options.get(name)
    return 1 if value is None else value if isinstance(value, int) else repr(value)


def _shape(before: View, after: View) -> Iterator[Finding]:
    for name in MUST_STAY:
        one, two = before.said.get(name), after.said.get(name)
        if one is None or two is None or one == two or not isinstance(two, (int, str, bool)):
            continue
        yield Finding(
            rule="checkpoint-shape",
            severity="error",
            message=f"{name} was {one} and is {two}: the weights have another shape",
            fix=f"{name} {one}, as in the checkpoint",
            enforced_by="Megatron Core",
            line=after.lines.get(name),
        )


def _format(
    new: Reading, before: View, after: View, changed: dict[str, tuple[Any, Any]]
) -> Iterator[Finding]:
    """Legacy checkpoints do not reshard; the optimizer state of torch_dist does when saved that way."""
    if not changed:
        return
    shown = ", ".join(f"{LAYOUT[name]} {old or 1} -> {now or 1}" for name, (old, now) in changed.items())
    if before.options.get("ckpt_format") == "torch":
        yield Finding(
            rule="checkpoint-legacy-format",
            severity="warn",
            message="the checkpoint has the legacy torch format, which loads only under its own layout "
            f"({shown})",
            fix="load it under the old layout and save with --ckpt-format torch_dist "
            "(or --ckpt-convert-format torch_dist), then change the layout",
            enforced_by="Megatron-LM",
            line=after.lines.get(next(iter(changed))),
        )
        return
    fully = before.options.get("dist_ckpt_optim_fully_reshardable") is True
    skips = new.get("no_load_optim") is True or new.get("load_optim") is False
    if not fully and not skips:
        yield Finding(
            rule="checkpoint-optimizer-reshard",
            severity="warn",
            message=f"the optimizer state is saved for its own layout ({shown}); unless it is fully "
            "reshardable it loads only when the data-parallel size alone changes",
            fix="save with --dist-ckpt-optim-fully-reshardable before changing the layout, or go on with "
            "--no-load-optim (weights only; the moments warm up again)",
            enforced_by="Megatron Core",
            line=after.lines.get(next(iter(changed))),
        )


def _vocabulary(before: View, after: View) -> Iterator[Finding]:
    """The padded vocabulary is a multiple of 128 * TP: it may change with TP."""
    one, two = before.options.get("padded_vocab_size"), after.options.get("padded_vocab_size")
    same = before.said.get("vocab_size") == after.said.get("vocab_size")
    if not same or not (isinstance(one, int) and isinstance(two, int)) or one == two:
        return
    yield Finding(
        rule="checkpoint-padded-vocabulary",
        severity="advice",
        message=f"the padded vocabulary changes with TP: {one} -> {two} rows of the embedding",
        fix="torch_dist fills or cuts the padding; with the legacy format keep "
        "--make-vocab-size-divisible-by * TP the same",
        enforced_by="Megatron Core",
    )


def _random(changed: dict[str, tuple[Any, Any]]) -> Iterator[Finding]:
    """Random states are kept a (pipeline, tensor) rank: they do not survive another grid."""
    if not {"tensor_model_parallel_size", "pipeline_model_parallel_size"} & set(changed):
        return
    yield Finding(
        rule="checkpoint-random-state",
        severity="advice",
        message="the RNG states are those of the old TP and PP ranks: dropout is not repeated bit by bit",
        fix="--no-load-rng",
        enforced_by="Megatron-LM",
    )
