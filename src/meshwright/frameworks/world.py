"""How many processes a command starts: nodes, GPUs a node, world size, each with its source."""

from __future__ import annotations

from collections.abc import Mapping

from meshwright.frameworks import launchers
from meshwright.frameworks.commands import Command, unknown_of, value_of
from meshwright.frameworks.reading import Launcher, Source, Unknown, Value
from meshwright.frameworks.shell.text import Text

NODES = ("nnodes", "num_nodes", "num_machines")
PER_NODE = ("nproc_per_node", "num_gpus", "num_processes_per_node")


def derived(value: int, name: str, line: int | None = None, file: str = "") -> Value:
    return Value(value, Source(kind="derived", name=name, line=line, file=file))


def launcher_of(command: Command) -> tuple[Launcher, tuple[Unknown, ...]]:
    """Nodes and GPUs a node from srun, torchrun, deepspeed, mpirun, #SBATCH lines and the environment."""
    nodes: Text | None = None
    per_node: Text | None = None
    total: Text | None = None
    programs = tuple(peeled.name for peeled, _ in command.layers)
    batch_nodes, batch_gpus = _from_batch(command.directives)
    for layer, (peeled, _) in enumerate(command.layers):
        if peeled.name in ("torchrun", "deepspeed", "accelerate"):
            nodes = command.option(layer, *NODES) or nodes
            per_node = command.option(layer, *PER_NODE) or per_node
            if peeled.name == "deepspeed":
                total = _included(command.option(layer, "include", "i")) or total
            if peeled.name == "accelerate":
                total = command.option(layer, "num_processes") or total
            if "standalone" in peeled.options and nodes is None:
                nodes = Text.of("1", command.arguments[0].mark if command.arguments else Text().mark)
        elif peeled.name == "srun":
            nodes = command.option(layer, "nodes", "N") or nodes
            gpus = {
                k: command.option(layer, k) for k in ("gpus_per_node", "gres") if command.option(layer, k)
            }
            found, _ = launchers.gpus_of_slurm({k: v for k, v in gpus.items() if v is not None})
            tasks = command.option(layer, "ntasks_per_node")
            per_node = found or (tasks if "torchrun" not in programs else None) or per_node
            total = command.option(layer, "ntasks", "n") or total if "torchrun" not in programs else total
        elif peeled.name == "sbatch":
            batch_nodes = command.option(layer, "nodes", "N") or batch_nodes
        elif peeled.name == "mpirun":
            total = command.option(layer, "np", "n", "c") or total
    elastic = nodes
    if nodes is not None and ":" in nodes.plain:
        fewest, _, nodes = nodes.partition(":")
        if fewest.plain != nodes.plain and fewest.is_known and nodes.is_known:
            nodes = command.unknowns.text(
                {f"how many nodes join ({fewest.plain} to {nodes.plain})"}, nodes.mark
            )
    if "torchrun" in programs and nodes is None and batch_nodes is None:
        nodes = Text.of("1", (elastic or per_node or Text()).mark)
    if "deepspeed" in programs and nodes is None and not _hosts_named(command):
        nodes = Text.of("1", (per_node or Text()).mark)  # without a hostfile it starts on this machine alone
    nodes = nodes if nodes is not None else batch_nodes
    per_node = per_node if per_node is not None else batch_gpus
    if per_node is not None and per_node.plain in ("gpu", "auto", "cuda"):
        per_node = batch_gpus
    if total is None and nodes is None and per_node is None:
        nodes, per_node, total = _from_environment(command.environment)
    return launcher_from(command, nodes, per_node, total, programs)


def _included(said: Text | None) -> Text | None:
    """Ranks of `--include host:0,1@other:0,1`; None where a host stands there with all of its slots."""
    if said is None or not said.is_known:
        return None
    slots = [host.partition(":")[2] for host in said.plain.split("@")]
    if not all(slots):
        return None
    return Text.of(str(sum(len(part.split(",")) for part in slots)), said.mark)


def _hosts_named(command: Command) -> bool:
    return any(command.option(layer, "hostfile", "H") is not None for layer in range(len(command.layers)))


def launcher_from(
    command: Command, nodes: Text | None, per_node: Text | None, total: Text | None, programs: tuple[str, ...]
) -> tuple[Launcher, tuple[Unknown, ...]]:
    """A launcher from marked texts; what is not settled becomes unknown."""
    unknowns: list[Unknown] = []

    def settled(option: str, text: Text | None) -> Value | None:
        if text is None:
            return None
        value = value_of(option, text, command.unknowns)
        if isinstance(value, Unknown):
            unknowns.append(unknown_of(option, text, command.unknowns))
            return None
        return value if isinstance(value.value, int) and not isinstance(value.value, bool) else None

    node_value, gpu_value, world = (
        settled("nodes", nodes),
        settled("gpus per node", per_node),
        settled("gpus", total),
    )
    return Launcher(
        nodes=node_value,
        gpus_per_node=gpu_value,
        world=world or _product(node_value, gpu_value),
        programs=programs,
    ), tuple(unknowns)


def _product(nodes: Value | None, per_node: Value | None) -> Value | None:
    if nodes is None or per_node is None:
        return None
    if not (isinstance(nodes.value, int) and isinstance(per_node.value, int)):
        return None
    total = nodes.value * per_node.value
    return derived(total, f"{nodes.value} nodes x {per_node.value} GPUs", nodes.line, nodes.source.file)


def from_counts(nodes: Value | None, per_node: Value | None, programs: tuple[str, ...] = ()) -> Launcher:
    """A launcher from two known numbers."""
    return Launcher(nodes=nodes, gpus_per_node=per_node, world=_product(nodes, per_node), programs=programs)


def _from_batch(directives: Mapping[str, Text]) -> tuple[Text | None, Text | None]:
    """Nodes and GPUs a node from #SBATCH lines."""
    nodes = directives.get("nodes")
    per_node, _ = launchers.gpus_of_slurm(directives)
    if per_node is None and directives and "gpus" not in directives:
        per_node = directives.get("ntasks_per_node")
    if nodes is not None and "-" in nodes.plain:
        nodes = nodes.partition("-")[2]
    return nodes, per_node


def _from_environment(environment: Mapping[str, Text]) -> tuple[Text | None, Text | None, Text | None]:
    """Variables that launch services and frameworks read (NNODES, NPROC_PER_NODE, WORLD_SIZE)."""
    nodes = next((environment[n] for n in ("NNODES", "NUM_NODES", "PET_NNODES") if n in environment), None)
    per_node = next(
        (
            environment[n]
            for n in ("NPROC_PER_NODE", "GPUS_PER_NODE", "PET_NPROC_PER_NODE")
            if n in environment
        ),
        None,
    )
    total = environment.get("WORLD_SIZE") if nodes is None and per_node is None else None
    return nodes, per_node, total
