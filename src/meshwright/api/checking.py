"""`check`: what is wrong with a launch script, a config or a command."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

from meshwright.cluster.parse import parse_cluster, parse_gpu_count
from meshwright.errors import QuestionError
from meshwright.frameworks.check import Report, check_readings
from meshwright.frameworks.read import Given, expand, iter_readings, read_command, read_text
from meshwright.frameworks.reading import Reading
from meshwright.frameworks.view import Beside

FileProgress = Callable[[int, int], None]


def check(
    files: Iterable[str | Path] = (),
    *,
    command: Sequence[str] = (),
    text: str | None = None,
    name: str = "input.sh",
    gpus: str | int | None = None,
    gpu: str | None = None,
    gpus_per_node: int | None = None,
    environment: Mapping[str, str] | None = None,
    arguments: Mapping[int, str] | None = None,
    framework: str | None = None,
    framework_version: str | None = None,
    online: bool = False,
    progress: FileProgress | None = None,
) -> Report:
    """Read files (or directories, or glob patterns), a live command or a text, and judge every run in them.

    gpus         world size or cluster, where the files do not settle it
    environment  values of environment variables; arguments: positional arguments of a script
    online       a model named by a hub id may be looked up
    Nothing that is read is ever run. Raises QuestionError when there is nothing to check.
    """
    given = Given(environment=environment or {}, arguments=arguments or {}, framework=framework)
    beside = _beside(gpus, gpu, gpus_per_node, framework_version, online)
    readings: list[Reading] = []
    unread: dict[str, str] = {}
    if command:
        readings += read_command(command, given)
    if text is not None:
        readings += read_text(text, name, given)
    paths = expand(files)
    for number, (path, found) in enumerate(iter_readings(paths, given), 1):
        if isinstance(found, QuestionError):
            if len(paths) == 1 and not readings:
                raise found
            unread[str(path)] = str(found)
        else:
            readings += found
        if progress is not None:
            progress(number, len(paths))
    return check_readings(readings, beside, unread)


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
