"""Checks that belong to launchers and frameworks, not to Megatron's own rules.

Each takes a reading and its view and returns findings; a value that is not known ends it quietly.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from meshwright.frameworks import torchtitan
from meshwright.frameworks.reading import Reading
from meshwright.frameworks.view import gpu_of
from meshwright.layout.rules import Finding, Undecided, View

MXFP8_BLOCK = 32
"""Elements that share a scale in MXFP8 (OCP Microscaling Formats 1.0)."""
RANKS = "NUM_OF_HYBRID_EP_RANKS_PER_NVLINK_DOMAIN"
Check = Callable[[Reading, View], Iterator[Finding]]


def findings(reading: Reading, view: View) -> list[Finding]:
    """What all of these checks find."""
    checks = TITAN if reading.framework == "torchtitan" else MEGATRON
    found: list[Finding] = []
    for check in checks:
        try:
            found += check(reading, view)
        except Undecided:
            continue
    return found


def _line(reading: Reading, *names: str) -> int | None:
    return next((reading.options[n].line for n in names if n in reading.options), None)


def mxfp8_widths(reading: Reading, view: View) -> Iterator[Finding]:
    """MXFP8 scales blocks of 32 elements: a rank's part of each width must be a multiple of 32.

    Source: transformer_engine, module/_common and recipe MXFP8BlockScaling (shape check of the quantizer).
    """
    if view.get("fp8_recipe") != "mxfp8" or not view.get("fp8"):
        return
    pairs = [("ffn_hidden_size", view.tp, "tp")]
    if view.is_moe:
        pairs = [("moe_ffn_hidden_size", view.etp, "etp")]
    for name, degree, short in pairs:
        width = view.get(name)
        if width is None or width % degree or (width // degree) % MXFP8_BLOCK == 0:
            continue
        local = width // degree
        legal = next(
            (
                d
                for d in (degree // 2, degree // 4, 1)
                if d and width % d == 0 and width // d % MXFP8_BLOCK == 0
            ),
            1,
        )
        wide = -(-width // (MXFP8_BLOCK * degree)) * MXFP8_BLOCK * degree
        yield Finding(
            rule="mxfp8-local-width",
            severity="error",
            message=f"mxfp8 needs widths of whole blocks of {MXFP8_BLOCK} on every rank: {name} {width} / "
            f"{short} {degree} = {local}, {local} % {MXFP8_BLOCK} = {local % MXFP8_BLOCK}",
            fix=f"{short} {legal} ({width // legal} % {MXFP8_BLOCK} = 0), or a width of {wide}",
            enforced_by="Transformer Engine",
            line=_line(reading, name),
        )


def machines_or_ranks(reading: Reading, view: View) -> Iterator[Finding]:
    """Launch services set WORLD_SIZE to machines; torchrun sets it to processes."""
    nodes, per_node = reading.launcher.nodes, reading.launcher.gpus_per_node
    world = reading.launcher.world
    if nodes is None or per_node is None or world is None or "WORLD_SIZE" not in nodes.source.name:
        return
    if per_node.value == 1:
        return
    yield Finding(
        rule="world-size-means-nodes",
        severity="warn",
        message=f"WORLD_SIZE means nodes here: {nodes.value} nodes x {per_node.value} GPUs are {world.value} "
        "ranks; torchrun sets WORLD_SIZE to the number of processes",
        fix=f"compute DP from {nodes.value} x {per_node.value} = {world.value} ranks, and call the variable "
        "NNODES",
        enforced_by="advice",
        line=nodes.line,
    )


def hybridep_environment(reading: Reading, view: View) -> Iterator[Finding]:
    """HybridEP learns the topology from variables; on rack-wide NVLink the default is wrong."""
    if view.get("moe_flex_dispatcher_backend") != "hybridep" or not reading.launcher.programs:
        return
    gpu = gpu_of(reading)
    domain = gpu.nvlink_domain if gpu is not None else view.get("nvlink_domain") or 0
    per_node = view.get("gpus_per_node") or 8
    if domain <= per_node:
        return
    wanted = {
        "NVLINK_DOMAIN_SIZE": domain,
        "NUM_OF_HYBRID_EP_RANKS_PER_NVLINK_DOMAIN": min(view.ep * view.etp, domain),
    }
    missing = [name for name in wanted if name not in reading.environment]
    told = reading.environment.get(RANKS)
    bridge = reading.framework == "megatron-bridge"
    if missing:
        yield Finding(
            rule="hybridep-environment",
            # Bridge's recipes export these themselves; elsewhere nobody does.
            severity="advice" if bridge else "warn",
            message=f"HybridEP on an NVLink domain of {domain} without {' and '.join(missing)}: it takes the "
            f"node of {per_node} GPUs for the domain and sends over the network",
            fix="; ".join(f"export {name}={wanted[name]}" for name in missing),
            enforced_by="advice",
        )
    if (
        told is not None
        and str(told.value).isdigit()
        and int(str(told.value)) == per_node < view.ep * view.etp
    ):
        yield Finding(
            rule="hybridep-domain-is-rack",
            severity="warn",
            message=f"{RANKS} is {told.value}, the GPUs of a host; the domain is {domain} (the rack), so "
            "traffic that NVLink could carry goes over the network",
            fix=f"export {RANKS}={wanted[RANKS]} and NVLINK_DOMAIN_SIZE={domain}",
            enforced_by="advice",
            line=told.line,
        )


def gpus_or_trays(reading: Reading, view: View) -> Iterator[Finding]:
    """On nodes of 4, a number of GPUs is easily taken for a number of nodes."""
    per_node, world = reading.launcher.gpus_per_node, view.world
    if per_node is None or per_node.value != 4 or world % 4 or world % view.min_gpus == 0:
        return
    yield Finding(
        rule="gpus-or-nodes",
        severity="advice",
        message=f"GPUs or nodes? {world} GPUs are {world // 4} trays of 4; {world} trays would be "
        f"{world * 4} GPUs",
        fix="say which is meant with --gpus",
        enforced_by="advice",
    )


# torchtitan's own checks

TITAN_NAMES = {
    "data_parallel_replicate_degree": "dp_replicate",
    "data_parallel_shard_degree": "dp_shard",
    "context_parallel_size": "cp",
    "tensor_model_parallel_size": "tp",
    "pipeline_model_parallel_size": "pp",
}


def titan_world(reading: Reading, view: View) -> Iterator[Finding]:
    """dp_replicate * dp_shard * cp * tp * pp must be the world size (torchtitan parallel_dims.py)."""
    world = reading.launcher.world
    degrees = torchtitan.degrees(reading)
    if world is None or not isinstance(world.value, int):
        return
    known = 1
    for value in degrees.values():
        known *= value if value > 0 else 1
    left_open = any(value < 1 for value in degrees.values())
    if world.value == known or (left_open and world.value % known == 0):
        return
    product = " * ".join(f"{TITAN_NAMES[name]} {value}" for name, value in degrees.items() if value > 0)
    shard = degrees["data_parallel_shard_degree"]
    rest = known // shard if shard > 0 else known
    fixes = [f"{known} GPUs"]
    if world.value % rest == 0:
        fixes.insert(0, f"data_parallel_shard_degree {world.value // rest} (or -1)")
    yield Finding(
        rule="titan-world",
        severity="error",
        message=f"{product} = {known}, and {world.value} GPUs "
        + ("are not a multiple of it" if left_open else "start"),
        fix=" or ".join(fixes),
        enforced_by="torchtitan",
        line=_line(reading, "tensor_model_parallel_size", "data_parallel_shard_degree"),
    )


def titan_sequence(reading: Reading, view: View) -> Iterator[Finding]:
    """The sequence divides over tp, and over 2*cp with context parallelism (torchtitan, seq_len_divisor)."""
    tp, cp, sequence = view.tp, view.cp, view.get("seq_length")
    divisor = tp * (2 * cp if cp > 1 else 1)
    if not isinstance(sequence, int) or sequence % divisor == 0:
        return
    yield Finding(
        rule="titan-sequence",
        severity="error",
        message=f"seq_len {sequence} is not a multiple of tp {tp}"
        + (f" x 2 x cp {cp}" if cp > 1 else "")
        + f" = {divisor} ({sequence} % {divisor} = {sequence % divisor})",
        fix=f"seq_len {sequence // divisor * divisor} or {(sequence // divisor + 1) * divisor}",
        enforced_by="torchtitan",
        line=_line(reading, "seq_length"),
    )


def titan_batch(reading: Reading, view: View) -> Iterator[Finding]:
    """global_batch_size is a multiple of local_batch_size * dp (torchtitan train.py)."""
    world, batch = reading.launcher.world, reading.get("global_batch_size")
    local = reading.get("micro_batch_size") or 1
    degrees = torchtitan.degrees(reading)
    if world is None or not (
        isinstance(batch, int) and isinstance(local, int) and isinstance(world.value, int)
    ):
        return
    grid = (
        degrees["context_parallel_size"]
        * degrees["tensor_model_parallel_size"]
        * degrees["pipeline_model_parallel_size"]
    )
    dp = world.value // max(grid, 1)
    if batch < 1 or dp < 1 or batch % (local * dp) == 0:
        return
    step = local * dp
    yield Finding(
        rule="titan-batch",
        severity="error",
        message=f"global_batch_size {batch} is not a multiple of local_batch_size {local} x dp {dp} = {step} "
        f"({batch} % {step} = {batch % step})",
        fix=f"global_batch_size {max(batch // step, 1) * step} or {(batch // step + 1) * step}",
        enforced_by="torchtitan",
        line=_line(reading, "global_batch_size"),
    )


MEGATRON: tuple[Check, ...] = (mxfp8_widths, machines_or_ranks, hybridep_environment, gpus_or_trays)
TITAN: tuple[Check, ...] = (titan_world, titan_sequence, titan_batch)
