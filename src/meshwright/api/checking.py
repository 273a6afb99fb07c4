"""`check`: what is wrong with a launch script, a config or a command."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from meshwright.cluster.catalog import find_gpu
from meshwright.cluster.parse import parse_cluster, parse_gpu_count
from meshwright.errors import QuestionError
from meshwright.frameworks.adapters import adapter, names
from meshwright.frameworks.check import Report
from meshwright.frameworks.check_files import check_files
from meshwright.frameworks.read import Given, read_command, read_text
from meshwright.frameworks.reading import Reading
from meshwright.frameworks.view import Beside

FileProgress = Callable[[int, int], None]
MOST_NODES = 1_000_000


def check(
    files: Iterable[str | Path] = (),
    *,
    command: Sequence[str] = (),
    text: str | None = None,
    name: str = "input.sh",
    gpus: str | int | None = None,
    gpu: str | None = None,
    gpus_per_node: int | None = None,
    nodes: int | None = None,
    environment: Mapping[str, str] | None = None,
    arguments: Mapping[int, str] | None = None,
    framework: str | None = None,
    framework_version: str | None = None,
    online: bool = False,
    progress: FileProgress | None = None,
    pass_others: bool = False,
) -> Report:
    """Read files (or directories, or glob patterns), a live command or a text, and judge every run in them.

    gpus         world size or cluster, where the files do not settle it; nodes: machines instead
    environment  values of environment variables; arguments: positional arguments of a script
    online       a model named by a hub id may be looked up
    pass_others  files that say nothing of a training are passed over, not reported (for commit hooks)
    Nothing that is read is ever run. Raises QuestionError when there is nothing to check.
    """
    if framework is not None and adapter(framework) is None:
        raise QuestionError(f"unknown framework {framework!r}. Known: {', '.join(names())}")
    if gpu is not None:
        find_gpu(gpu)
    given = Given(environment=environment or {}, arguments=arguments or {}, framework=framework)
    beside = replace(_beside(gpus, gpu, gpus_per_node, framework_version, online), nodes=_nodes(nodes, gpus))
    readings: list[Reading] = []
    if command:
        readings += read_command(command, given)
    if text is not None:
        readings += read_text(text, name, given)
    return check_files(files, given, beside, progress, more=readings, others="pass" if pass_others else "say")


def _nodes(nodes: int | None, gpus: str | int | None) -> int | None:
    if nodes is not None and not 0 < nodes <= MOST_NODES:
        raise QuestionError(f"--nodes {nodes}: between 1 and {MOST_NODES:,}")
    if nodes is not None and gpus is not None:
        raise QuestionError("say --nodes or --gpus, not both")
    return nodes


def _beside(
    gpus: str | int | None, gpu: str | None, per_node: int | None, version: str | None, online: bool
) -> Beside:
    """A bare number is a world size; a cluster also names the GPU and the node."""
    world: int | None = None
    if isinstance(gpus, int) or (isinstance(gpus, str) and gpus.strip().lstrip("+-").isdigit()):
        world = parse_gpu_count(str(gpus))
    elif gpus is not None:
        cluster = parse_cluster(gpus)
        world, gpu, per_node = cluster.world, gpu or cluster.gpu.name, per_node or cluster.gpus_per_node
    return Beside(world=world, gpu=gpu, gpus_per_node=per_node, framework_version=version, online=online)
