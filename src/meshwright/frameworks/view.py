"""A reading as the rules see it: options, model, cluster, environment, source lines."""

from __future__ import annotations

import os.path
import re
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from meshwright.errors import QuestionError
from meshwright.frameworks.reading import Launcher, Reading, Source, Value
from meshwright.frameworks.spelling import short_names
from meshwright.frameworks.world import from_counts

if TYPE_CHECKING:
    from meshwright.cluster.spec import Cluster, Gpu
    from meshwright.job.spec import Framework
    from meshwright.layout.rules import View
    from meshwright.model.spec import Model

RULES_OF: dict[str, Framework] = {
    "megatron-lm": "megatron-lm",
    "slime": "megatron-lm",
    "ms-swift": "megatron-lm",
    "primus": "megatron-lm",
    "megatron-deepspeed": "megatron-lm",
    "megatron-bridge": "megatron-bridge",
    "nemo-rl": "megatron-bridge",
    "nemo": "megatron-core",
    "verl": "megatron-core",
}
"""Whose checks a framework goes through: Megatron-LM's arguments, Bridge's config, or only the core."""
OWN_ENVIRONMENT = frozenset({"ms-swift", "nemo", "nemo-rl", "verl", "primus", "torchtitan"})
"""Frameworks that set CUDA and NCCL variables themselves: what a script leaves out says nothing."""


PRIMUS_BASE = (
    "add_bias_linear",
    "position_embedding_type",
    "use_distributed_optimizer",
    "moe_token_dispatcher_type",
    "moe_router_dtype",
    "moe_grouped_gemm",
    "bf16",
    "transformer_impl",
)
"""Options that the base and model configs of Primus set, which are not here."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Beside:
    """What a person says beside the files."""

    world: int | None = None
    gpu: str | None = None
    gpus_per_node: int | None = None
    nodes: int | None = None
    framework_version: str | None = None
    online: bool = False
    """Whether a model that is named by a hub id may be looked up there."""


def framework_of(reading: Reading) -> Framework:
    return RULES_OF.get(reading.framework, "megatron-core")


def with_given(reading: Reading, beside: Beside) -> Reading:
    """The reading with GPUs and their kind as the person says."""
    given = Source(kind="given", name="--gpus")
    reading = _machines_given(reading, beside)
    launcher = reading.launcher
    if beside.world is not None:
        launcher = Launcher(
            nodes=None,
            gpus_per_node=Value(beside.gpus_per_node, given)
            if beside.gpus_per_node
            else launcher.gpus_per_node,
            world=Value(beside.world, given),
            programs=launcher.programs,
        )
        open_ = tuple(u for u in reading.unknowns if u.option not in ("nodes", "gpus per node", "gpus"))
        reading = replace(reading, launcher=launcher, unknowns=open_, complete=True)
    if beside.gpu is not None:
        reading = replace(reading, gpu=Value(beside.gpu, Source(kind="given", name="--gpu")))
    return reading


def _machines_given(reading: Reading, beside: Beside) -> Reading:
    """The reading with a number of nodes, or of GPUs a node, that the person says."""
    launcher = reading.launcher
    nodes, per_node = launcher.nodes, launcher.gpus_per_node
    if beside.nodes is not None:
        nodes = Value(beside.nodes, Source(kind="given", name="--nodes"))
    if beside.gpus_per_node is not None and (per_node is None or beside.nodes is not None):
        per_node = Value(beside.gpus_per_node, Source(kind="given", name="--gpus-per-node"))
    if (nodes is launcher.nodes and per_node is launcher.gpus_per_node) or nodes is None:
        return reading
    if per_node is None:
        kind = str(beside.gpu or (reading.gpu.value if reading.gpu else "")).upper()
        usual = USUAL_TRAY if kind.startswith("GB") else USUAL_NODE
        per_node = Value(usual, Source(kind="default", name=f"{kind or 'GPU'} nodes"))
    done = from_counts(nodes, per_node, launcher.programs)
    open_ = tuple(u for u in reading.unknowns if u.option not in ("nodes", "gpus per node", "gpus"))
    return replace(reading, launcher=done, unknowns=open_, complete=True)


USUAL_NODE, USUAL_TRAY = 8, 4
"""GPUs of a node where nothing says how many: HGX boards, and trays of GB200 and GB300."""


def gpu_of(reading: Reading) -> Gpu | None:
    """The GPU that the files or the person name, None when it is not known here."""
    from meshwright.cluster.catalog import find_gpu

    if reading.gpu is None:
        return None
    name = str(reading.gpu.value)
    for candidate in (name, name.replace("-", " "), re.sub(r"-\d+GB$", "", name)):
        try:
            return find_gpu(candidate)
        except QuestionError:
            continue
    return None


def cluster_of(reading: Reading) -> Cluster | None:
    """The cluster, when world size and kind of GPU are known."""
    from meshwright.cluster.parse import parse_cluster

    gpu, world = gpu_of(reading), reading.launcher.world
    if gpu is None or world is None or not isinstance(world.value, int) or world.value < 1:
        return None
    per_node = reading.launcher.gpus_per_node
    count = per_node.value if per_node is not None and isinstance(per_node.value, int) else None
    try:
        return parse_cluster(f"{world.value}x{gpu.name}", gpus_per_node=count)
    except QuestionError:
        return None


def model_of(reading: Reading, *, online: bool = False) -> Model | None:
    """The model that the reading names: from the catalog, a path that exists, or (online) the hub."""
    from meshwright.model import catalog
    from meshwright.model.load import HUB_ID, load_model

    if reading.model is None or not reading.model.value:
        return None
    name = str(reading.model.value)
    short = os.path.basename(name.rstrip("/"))
    for candidate in (name, short, _without_task(short)):
        if catalog.known(candidate):
            return catalog.find(candidate)
    local = name.startswith((".", "/", "~")) and (Path(name).expanduser() / "config.json").is_file()
    if local or (
        online and HUB_ID.fullmatch(name) and not name.startswith(("models/", "checkpoints/", "data/"))
    ):
        try:
            return load_model(name)
        except QuestionError:
            return None
    return None


def _without_task(name: str) -> str:
    """`Qwen2.5-7B-Instruct` -> `Qwen2.5-7B`."""
    return re.sub(r"[-_](Instruct|Chat|Base|hf|it|SFT|Thinking)$", "", name, flags=re.IGNORECASE)


def options_of(reading: Reading) -> dict[str, Any]:
    """Options for the rules; what is open is UNKNOWN."""
    from meshwright.layout.rules import UNKNOWN

    options: dict[str, Any] = {name: _listed(value.value) for name, value in reading.options.items()}
    for unknown in reading.unknowns:
        options[unknown.option] = UNKNOWN
    for name in ("nodes", "gpus per node", "gpus", "more options"):
        options.pop(name, None)
    world = reading.launcher.world
    options["world_size"] = world.value if world is not None else UNKNOWN
    if reading.options.get("use_dynamic_batch_size") is not None:
        options["micro_batch_size"] = UNKNOWN
    if reading.framework in ("verl", "slime", "nemo-rl"):
        # The batch of one optimizer step is not what a pipeline sees there, unless it is stated.
        options.setdefault("global_batch_size", UNKNOWN)
    if reading.framework in ("nemo", "verl"):
        # Both derive it from the precision of the run.
        options.setdefault("pipeline_dtype", "params_dtype")
    if reading.framework == "primus":
        # Its base config, which is not here, sets these.
        for name in PRIMUS_BASE:
            options.setdefault(name, UNKNOWN)
    if (
        reading.framework in ("nemo", "nemo-rl", "verl", "ms-swift")
        and options.get("tensor_model_parallel_size", 1) == 1
    ):
        # These switch sequence parallelism off without a word when there is nothing to be parallel to.
        options.pop("sequence_parallel", None)
    return options


def _listed(value: Any) -> Any:
    """Tuples as lists, one level down as well (a pipeline layout is a list of lists)."""
    if not isinstance(value, tuple):
        return value
    return [list(item) if isinstance(item, tuple) else item for item in value]


def view_of(reading: Reading, beside: Beside | None = None) -> View:
    """The view that the rules check."""
    from meshwright.layout.rules import UNKNOWN, View

    beside = beside or Beside()
    reading = with_given(reading, beside)
    cluster, gpu, model = cluster_of(reading), gpu_of(reading), model_of(reading, online=beside.online)
    options = options_of(reading)
    if model is None and "num_layers" not in options:
        # The shape is said elsewhere (a recipe, a checkpoint): whether there are experts is open.
        options.setdefault("num_moe_experts", UNKNOWN)
    if gpu is not None and cluster is None:
        options.setdefault("gpu_name", gpu.name)
        options.setdefault("gpu_architecture", gpu.architecture)
        options.setdefault("nvlink_domain", gpu.nvlink_domain)
        if gpu.compute_capability:
            options.setdefault("compute_capability", gpu.compute_capability)
    per_node = reading.launcher.gpus_per_node
    if cluster is None and per_node is not None:
        options.setdefault("gpus_per_node", per_node.value)
    return View.of(
        options,
        framework=framework_of(reading),
        version=beside.framework_version,
        model=model,
        cluster=cluster,
        env=environment_of(reading),
        lines=lines_of(reading),
    )


def environment_of(reading: Reading) -> dict[str, str] | None:
    """Variables as the rules read them; None where the script does not settle the environment."""
    if reading.framework in OWN_ENVIRONMENT or not reading.launcher.programs:
        return None
    if reading.sources == ("command",) and not reading.environment:
        return None
    return {name: str(value.value) for name, value in reading.environment.items()}


def lines_of(reading: Reading) -> dict[str, int]:
    """Source lines by canonical and by short names."""
    lines = {name: value.line for name, value in reading.options.items() if value.line}
    world = reading.launcher.world
    if world is not None and world.line:
        lines["world_size"] = lines["world"] = world.line
    for name, value in reading.environment.items():
        if value.line:
            lines[name] = value.line
    for short, long in short_names().items():
        if long in lines:
            lines[short] = lines[long]
    return lines
