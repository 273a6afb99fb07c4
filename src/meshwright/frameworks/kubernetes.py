"""Kubernetes: PyTorchJob and MPIJob manifests; the containers' commands are read like scripts."""

from __future__ import annotations

import os.path
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from meshwright.frameworks import scripts
from meshwright.frameworks.documents import Flat
from meshwright.frameworks.plan import Plan
from meshwright.frameworks.reading import Value
from meshwright.frameworks.shell.text import Mark, Text

KINDS = ("PyTorchJob", "MPIJob", "TrainJob", "Job", "JobSet", "RayJob")
REPLICAS = ("spec.pytorchReplicaSpecs", "spec.mpiReplicaSpecs")


@dataclass(frozen=True)
class Manifest:
    """One job of a file of manifests: what its container runs, and on how many GPUs."""

    words: tuple[Text, ...]
    environment: Mapping[str, Text]
    nodes: Value | None
    gpus_per_node: Value | None
    files: Mapping[str, Text] = field(default_factory=dict)
    """Files that ConfigMaps mount into the container."""


def matches_document(flat: Flat) -> bool:
    return "apiVersion" in flat and "kind" in flat


def jobs(documents: list[Flat], file: str, text: str) -> Iterator[Manifest]:
    """The training jobs among the documents of a file."""
    maps = {str(_plain(d, "metadata.name")): d for d in documents if _plain(d, "kind") == "ConfigMap"}
    for flat in documents:
        if _plain(flat, "kind") not in KINDS:
            continue
        pods = _pods(flat)
        if pods:
            yield _manifest(flat, pods, maps, file)


def _plain(flat: Flat, path: str) -> object:
    value = flat.get(path)
    return value.value if value is not None else None


def _pods(flat: Flat) -> list[tuple[str, str]]:
    """(replica group, path of its pod's spec)."""
    found: dict[str, str] = {}
    for path in flat:
        head, separator, _ = path.partition(".containers.0.")
        if separator:
            group = head.removesuffix(".template.spec").removesuffix(".spec")
            found.setdefault(group, head)
    return list(found.items())


def _manifest(flat: Flat, pods: list[tuple[str, str]], maps: Mapping[str, Flat], file: str) -> Manifest:
    master = next((pod for pod in pods if "Master" in pod[0] or "Launcher" in pod[0]), pods[0])
    container = f"{master[1]}.containers.0"
    words = [*_list(flat, f"{container}.command", file), *_list(flat, f"{container}.args", file)]
    replicas = 0
    line = None
    for group, _ in pods:
        count = _plain(flat, f"{group}.replicas")
        replicas += count if isinstance(count, int) else 1
        line = line or (flat[f"{group}.replicas"].line if f"{group}.replicas" in flat else None)
    source = flat.get(f"{master[0]}.replicas")
    nodes = Value(replicas, source.source) if source is not None else None
    return Manifest(
        words=tuple(words),
        environment=_environment(flat, container, file),
        nodes=nodes,
        gpus_per_node=_gpus(flat, container),
        files=_mounted(flat, master[1], container, maps, file),
    )


def _gpus(flat: Flat, container: str) -> Value | None:
    """nprocPerNode, else the GPUs that the container asks for."""
    for path in (
        "spec.nprocPerNode",
        f"{container}.resources.limits.nvidia.com/gpu",
        f"{container}.resources.requests.nvidia.com/gpu",
    ):
        value = flat.get(path)
        if value is not None and str(value.value).isdigit():
            return Value(int(str(value.value)), value.source)
    return None


def _list(flat: Flat, path: str, file: str) -> list[Text]:
    """A list of words, each with its line."""
    found: list[Text] = []
    while (value := flat.get(f"{path}.{len(found)}")) is not None:
        found.append(_text(value, file))
    return found


def _text(value: Value, file: str) -> Text:
    plain = str(value.value)
    lines = plain.split("\n")
    if len(lines) == 1:
        return Text.of(plain, Mark(file, value.line or 0))
    start = (value.line or 0) + 1
    ends = ["\n"] * (len(lines) - 1) + [""]
    return Text(
        tuple(
            (line + end, Mark(file, start + n)) for n, (line, end) in enumerate(zip(lines, ends, strict=True))
        )
    )


def _environment(flat: Flat, container: str, file: str) -> dict[str, Text]:
    found: dict[str, Text] = {}
    for number in range(500):
        name = flat.get(f"{container}.env.{number}.name")
        if name is None:
            break
        value = flat.get(f"{container}.env.{number}.value")
        if value is not None:
            found[str(name.value)] = _text(value, file)
    return found


def _mounted(flat: Flat, pod: str, container: str, maps: Mapping[str, Flat], file: str) -> dict[str, Text]:
    """Files of ConfigMaps at their mount paths."""
    volumes: dict[object, Flat] = {}
    for number in range(50):
        name = _plain(flat, f"{pod}.volumes.{number}.name")
        config = maps.get(str(_plain(flat, f"{pod}.volumes.{number}.configMap.name")))
        if config is not None:
            volumes[name] = config
    found: dict[str, Text] = {}
    for number in range(50):
        place = _plain(flat, f"{container}.volumeMounts.{number}.mountPath")
        config = volumes.get(_plain(flat, f"{container}.volumeMounts.{number}.name"))
        if config is None or not isinstance(place, str):
            continue
        for path, value in config.items():
            if path.startswith("data."):
                found[os.path.join(place, path[5:])] = _text(value, file)
    return found


def manifest(plan: Plan, words: list[str]) -> str:
    """A PyTorchJob: one master, the other nodes workers, all with the same command."""
    import yaml

    container = {
        "name": "pytorch",
        "image": "nvcr.io/nvidia/nemo:latest",
        "env": [{"name": name, "value": value} for name, value in plan.environment.items()],
        "command": ["torchrun", words[0]],
        "args": _joined(words[1:]),
        "resources": {"limits": {"nvidia.com/gpu": plan.gpus_per_node}},
    }
    replica = {"restartPolicy": "OnFailure", "template": {"spec": {"containers": [container]}}}
    specs: dict[str, object] = {"Master": {"replicas": 1, **replica}}
    if plan.nodes > 1:
        specs["Worker"] = {"replicas": plan.nodes - 1, **replica}
    tree = {
        "apiVersion": "kubeflow.org/v1",
        "kind": "PyTorchJob",
        "metadata": {
            "name": "".join(c if c.isalnum() else "-" for c in plan.name.lower()).strip("-") or "train"
        },
        "spec": {"nprocPerNode": str(plan.gpus_per_node), "pytorchReplicaSpecs": specs},
    }
    return scripts.comment(plan.heading) + yaml.safe_dump(tree, sort_keys=False)


def _joined(words: list[str]) -> list[str]:
    """`--flag value` as `--flag=value`, a word a list item; lists keep their own items."""
    out: list[str] = []
    for line in scripts.grouped(words):
        out += [f"{line[0]}={line[1]}"] if len(line) == 2 else line
    return out
