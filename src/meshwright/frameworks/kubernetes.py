"""Kubernetes: PyTorchJob and MPIJob manifests; the containers' commands are read like scripts."""

from __future__ import annotations

import os.path
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from meshwright.frameworks import scripts
from meshwright.frameworks.documents import Flat
from meshwright.frameworks.gpus import gpu_in
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
    gpu: Value | None = None
    """Kind of GPU that the pods ask their node for."""


def matches_document(flat: Flat) -> bool:
    return "apiVersion" in flat and "kind" in flat


def jobs(documents: list[Flat], file: str, text: str) -> Iterator[Manifest]:
    """The training jobs among the documents of a file."""
    maps = {str(_plain(d, "metadata.name")): d for d in documents if _plain(d, "kind") == "ConfigMap"}
    for flat in documents:
        if _plain(flat, "kind") not in KINDS:
            continue
        pods = _pods(flat)
        entrypoint = flat.get("spec.entrypoint")
        if any(path.startswith("spec.trainer.") for path in flat):
            yield _train_job(flat, file)
        elif entrypoint is not None and isinstance(entrypoint.value, str):
            yield _ray_job(entrypoint, file)
        elif pods:
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
    workers = [pod for pod in pods if pod != master] if "Launcher" in master[0] else []
    environment = _environment(flat, container, file)
    return Manifest(
        words=tuple(_substituted(word, environment) for word in words),
        environment=environment,
        gpu=_kind(flat, workers[0][1] if workers else master[1]),
        nodes=_nodes(flat, workers or pods),
        gpus_per_node=_gpus(flat, f"{workers[0][1]}.containers.0" if workers else container),
        files=_mounted(flat, master[1], container, maps, file),
    )


def _nodes(flat: Flat, pods: list[tuple[str, str]]) -> Value | None:
    """Pods that train: replicas of every group, or the parallelism of a plain Job; a launcher is none."""
    total = 0
    source: Value | None = None
    for group, head in pods:
        job = head.removesuffix(".template.spec")
        product = 1
        for count in (flat.get(f"{group}.replicas"), flat.get(f"{job}.parallelism")):
            if count is not None and isinstance(count.value, int):
                product *= count.value
                source = source or count
        total += product
    return Value(total, source.source) if source is not None else None


def _train_job(flat: Flat, file: str) -> Manifest:
    """A TrainJob of Kubeflow Trainer: everything below `spec.trainer`."""
    trainer = "spec.trainer"
    words = [*_list(flat, f"{trainer}.command", file), *_list(flat, f"{trainer}.args", file)]
    environment = _environment(flat, trainer, file)
    ranks = flat.get(f"{trainer}.numProcPerNode")
    stated = ranks is not None and isinstance(ranks.value, int)
    return Manifest(
        words=tuple(_substituted(word, environment) for word in words),
        environment=environment,
        nodes=flat.get(f"{trainer}.numNodes"),
        gpus_per_node=ranks if stated else _gpus(flat, trainer, "resourcesPerNode"),
    )


def _ray_job(entrypoint: Value, file: str) -> Manifest:
    """A RayJob: its entry point is a line of shell."""
    words = (Text.of("bash"), Text.of("-c"), _text(entrypoint, file))
    return Manifest(words=words, environment={}, nodes=None, gpus_per_node=None)


def _gpus(flat: Flat, container: str, resources: str = "resources") -> Value | None:
    """nprocPerNode or slotsPerWorker, else the GPUs that the container asks for."""
    for path in (
        "spec.nprocPerNode",
        "spec.slotsPerWorker",
        f"{container}.{resources}.limits.nvidia.com/gpu",
        f"{container}.{resources}.requests.nvidia.com/gpu",
        f"{container}.{resources}.limits.amd.com/gpu",
    ):
        value = flat.get(path)
        if value is not None and str(value.value).isdigit():
            return Value(int(str(value.value)), value.source)
    return None


GPU_LABELS = ("gpu.product", "gke-accelerator", "gpu-type", "gpu.model", "accelerator", "instance-type")


def _kind(flat: Flat, pod: str) -> Value | None:
    """The kind of GPU that a node selector names."""
    for path, value in flat.items():
        if path.startswith(f"{pod}.nodeSelector.") and path.endswith(GPU_LABELS):
            found = gpu_in(f"# {str(value.value).replace('_', '-')}", value.source.file, value.line)
            if found is not None:
                return found
    return None


def _substituted(word: Text, environment: Mapping[str, Text]) -> Text:
    """`$(NAME)` in commands and arguments: the container's own variables; others stay as they are."""
    plain = word.plain
    if "$(" not in plain:
        return word
    parts: list[Text] = []
    at = 0
    for found in re.finditer(r"\$?\$\((\w+)\)", plain):
        value = environment.get(found.group(1))
        if value is None or found.group().startswith("$$"):
            continue
        parts += [word.slice(at, found.start()), value]
        at = found.end()
    return Text.join([*parts, word.slice(at, len(word))], "")


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
            found[str(name.value)] = _substituted(_text(value, file), found)
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
    import json

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
        "metadata": {"name": _label(plan.name)},
        "spec": {
            "nprocPerNode": str(plan.gpus_per_node),
            "runPolicy": {"cleanPodPolicy": "None"},
            "pytorchReplicaSpecs": specs,
        },
    }
    # Through JSON, so that master and workers share no anchor.
    return scripts.comment(plan.heading) + yaml.safe_dump(json.loads(json.dumps(tree)), sort_keys=False)


def _label(name: str) -> str:
    """A name as Kubernetes takes it (RFC 1123): at most 63 lower-case letters, digits and dashes."""
    return re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")[:63].strip("-") or "train"


def _joined(words: list[str]) -> list[str]:
    """`--flag value` as `--flag=value`, a word a list item; lists keep their own items."""
    out: list[str] = []
    for line in scripts.grouped(words):
        out += [f"{line[0]}={line[1]}"] if len(line) == 2 else line
    return out
