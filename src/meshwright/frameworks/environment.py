"""Environment variables that a plan wants on its GPU, with the reason for each."""

from __future__ import annotations

from meshwright.frameworks.gpus import NAMED
from meshwright.frameworks.plan import Plan

BLACKWELL = ("B200", "GB200", "B300", "GB300", "R100", "VR200")
RACK = {"GB200": 72, "GB300": 72}
"""NVLink domain of rack-scale systems [GPUs]."""


def kind_of(plan: Plan) -> str:
    """The GPU's short name, empty when the plan names none."""
    found = NAMED.search(plan.gpu)
    return found.group(1).upper() if found else ""


def advised(framework: str, plan: Plan) -> dict[str, tuple[str, str]]:
    """{variable: (value, why)}; what the framework's own launcher sets is left to it."""
    if framework in ("nemo", "nemo-rl", "primus", "torchtitan"):
        return {}
    found: dict[str, tuple[str, str]] = {}
    queues = connections(plan)
    if queues is None and framework == "megatron-bridge" and plan.gpu:
        queues = ("32", "recipes of Megatron Bridge where neither TP nor CP is to be hidden")
    if queues is not None:
        found["CUDA_DEVICE_MAX_CONNECTIONS"] = queues
    if framework == "megatron-bridge" and plan.options.get("overlap_grad_reduce") is True:
        for way in ("FWD", "BWD"):
            why = "LayerNorm leaves room for the collective that overlaps"
            found[f"NVTE_{way}_LAYERNORM_SM_MARGIN"] = ("16", why)
    if _graphs(plan):
        found["NCCL_GRAPH_REGISTER"] = ("0", "CUDA graphs beside expandable segments need it")
    if not plan.options.get("nccl_ub"):
        found["PYTORCH_CUDA_ALLOC_CONF"] = ("expandable_segments:True", "less fragmentation")
    if plan.options.get("use_megatron_fsdp") is not True:
        found["TORCH_NCCL_AVOID_RECORD_STREAMS"] = ("1", "communication buffers are freed at once")
        found["NCCL_NVLS_ENABLE"] = (
            "0",
            "NVLink SHARP takes memory; switch it on where it is measured to pay",
        )
    return found | hybridep(plan)


def connections(plan: Plan) -> tuple[str, str] | None:
    """CUDA_DEVICE_MAX_CONNECTIONS: 1 orders communication before GEMMs on Hopper and before.

    Source: megatron/training/arguments.py, validate_args; recipes of Megatron Bridge (env_vars).
    """
    options = plan.options
    if options.get("use_megatron_fsdp") is True or options.get("use_torch_fsdp2") is True:
        return "32", "FSDP refuses 1: gathers and compute need queues of their own"
    if kind_of(plan) in BLACKWELL:
        return "32", "Blackwell orders queues itself, 1 is not needed"
    if options.get("overlap_moe_expert_parallel_comm") is True:
        return "32", "the overlapped expert exchange needs queues of its own"
    tp, cp = options.get("tensor_model_parallel_size", 1), options.get("context_parallel_size", 1)
    if tp != 1 or cp != 1:
        return "1", "TP or CP > 1 before Blackwell: Megatron-LM demands it, so that overlaps work"
    return None


def _graphs(plan: Plan) -> bool:
    return plan.options.get("cuda_graph_impl") not in (None, "none")


def hybridep(plan: Plan) -> dict[str, tuple[str, str]]:
    """The topology that HybridEP reads from variables."""
    if plan.options.get("moe_flex_dispatcher_backend") != "hybridep":
        return {}
    domain = RACK.get(kind_of(plan), plan.gpus_per_node)
    ranks = 1
    for name in ("expert_model_parallel_size", "expert_tensor_parallel_size"):
        size = plan.options.get(name)
        ranks *= size if isinstance(size, int) else 1
    inside = min(ranks, domain)
    while ranks % inside:
        inside -= 1
    why = f"EP ranks that share an NVLink domain of {domain}"
    found = {"NUM_OF_HYBRID_EP_RANKS_PER_NVLINK_DOMAIN": (str(inside), why)}
    if domain > plan.gpus_per_node:
        found["NVLINK_DOMAIN_SIZE"] = (str(domain), "the rack, not the node, is the NVLink domain")
        found["USE_MNNVL"] = ("1", "NVLink joins nodes here")
    return found
