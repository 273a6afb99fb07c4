"""From what was typed to the library's values: degrees, clusters, model changes."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from meshwright.cli.lists import batch, factors, several
from meshwright.errors import QuestionError

if TYPE_CHECKING:
    from meshwright.api.asking import Options
    from meshwright.cluster.spec import Cluster
    from meshwright.planner.economics import Rates

DEGREES = ("tp", "pp", "vpp", "cp", "ep", "etp", "mbs")
PLAIN = (
    "seq_length", "global_batch", "precision", "task", "optimizer", "grad_dtype", "stack", "framework",
    "framework_version", "sp", "pipeline_layout", "first_stage_layers", "last_stage_layers",
    "account_for_embedding", "account_for_loss", "sequence_lengths", "longest_packed_sequence",
)  # fmt: skip
FLAGS = (
    "dispatcher", "cuda_graphs", "distributed_optimizer", "fsdp", "optimizer_offload", "cp_comm",
    "capacity_factor", "cross_entropy_fusion", "expert_imbalance", "cpu_offload_layers",
    "expandable_segments", "attention_backend", "cross_entropy_impl", "rank_capacity", "paged_stash",
    "grouped_mlp_fusion",
)  # fmt: skip
LISTED = ("dispatcher",)
CHANGES = ("num_layers", "mtp_num_layers", "max_position", "vocab_size")
LARGEST_DEGREE = 10**6
MOST_JSON = 20_000_000


def read_options(said: Mapping[str, Any]) -> Options:
    """The library's options from what was said on the command line."""
    from meshwright.api.asking import Options
    from meshwright.cli.rollout import read_rollout
    from meshwright.planner.values import Range

    fields: dict[str, Any] = {name: said[name] for name in PLAIN if name in said}
    fields |= {name: degrees(name, said[name]) for name in DEGREES if name in said}
    if "global_batch" in said:
        fields["global_batch"] = batch(said["global_batch"])
    fields["execution"] = {name: said[name] for name in FLAGS if name in said} | _overlaps(said)
    fields["execution"] |= {name: several(f"--{name}", said[name]) for name in LISTED if name in said}
    if "capacity_factor" in said:
        fields["execution"]["capacity_factor"] = factors(said["capacity_factor"])
    if "offload_modules" in said:
        words = said["offload_modules"].replace(" ", ",").split(",")
        fields["execution"] |= {"offload_modules": tuple(filter(None, words))}
    fields["bounds"] = {name: Range(most=said[f"max_{name}"]) for name in DEGREES if f"max_{name}" in said}
    fields["free"] = tuple(filter(None, said.get("free", "").split(",")))
    fields["recompute"] = _recompute(said)
    fields["rollout"] = read_rollout(said)
    fields["model_changes"] = {name: said[name] for name in CHANGES if name in said} | _settings(
        said.get("set", [])
    )
    return Options(**fields)


def degrees(name: str, text: str) -> tuple[int, ...]:
    """One degree or several, separated by commas."""
    values = []
    for word in str(text).split(","):
        try:
            value = int(word.strip())
        except ValueError:
            value = 0
        if value < 1:
            raise QuestionError(
                f"--{name} {text[:60]}: a degree is a whole number of at least 1 (or a list: 1,2,4)"
            )
        if value > LARGEST_DEGREE:
            raise QuestionError(f"--{name} {text[:40]}: no degree is above {LARGEST_DEGREE:,}")
        values.append(value)
    return tuple(values)


def one_degree(name: str, text: str) -> int:
    """One degree; a list is an error."""
    values = degrees(name, text)
    if len(values) > 1:
        raise QuestionError(f"--{name} {text[:60]}: give one value here, not a list")
    return values[0]


def _overlaps(said: Mapping[str, Any]) -> dict[str, Any]:
    if "overlap" not in said and "no_overlap" not in said:
        return {}
    wanted = set(filter(None, said.get("overlap", "dp").split(",")))
    return {"overlaps": frozenset(wanted - set(said.get("no_overlap", "").split(",")) - {"none"})}


def _recompute(said: Mapping[str, Any]) -> Any:
    from meshwright.job.spec import Recompute

    names = ("recompute", "recompute_modules", "recompute_method", "recompute_num_layers")
    if not any(name in said for name in names):
        return None
    modules = tuple(filter(None, said.get("recompute_modules", "").replace(" ", ",").split(",")))
    granularity = said.get("recompute", "selective" if modules else "full")
    if granularity == "selective" and not modules:
        modules = ("core_attn",)
    return Recompute(
        granularity=granularity, modules=modules,
        method=said.get("recompute_method", "uniform"), num_layers=said.get("recompute_num_layers"),
    )  # fmt: skip


def _settings(words: list[str]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for word in words:
        name, equals, text = word.partition("=")
        if not equals or not name:
            raise QuestionError(f"--set {word[:60]}: write field=value, for example --set vocab_size=128256")
        try:
            found[name] = json.loads(text)
        except ValueError:
            found[name] = text
    return found


def read_levels(text: str) -> tuple[int, ...]:
    """Levels of `verify`: 0,1,2,3."""
    words = [word.strip() for word in text.split(",")]
    if not words or any(word not in ("0", "1", "2", "3") for word in words):
        raise QuestionError(f"--level {text[:40]}: levels are 0, 1, 2 and 3, separated by commas")
    return tuple(sorted({int(word) for word in words}))


def pairs(option: str, words: list[str]) -> dict[str, str]:
    """NAME=VALUE words."""
    found = {}
    for word in words:
        name, equals, value = word.partition("=")
        if not equals or not name:
            raise QuestionError(f"{option} {word[:60]}: write NAME=VALUE")
        found[name] = value
    return found


def numbered(option: str, words: list[str]) -> dict[int, str]:
    """N=VALUE words, N counted from 1."""
    found = {}
    for name, value in pairs(option, words).items():
        if not name.isdigit() or not 1 <= int(name) <= 1000:
            raise QuestionError(
                f"{option} {name[:60]}={value[:20]}: write the argument's number first, as in 1=70B"
            )
        found[int(name)] = value
    return found


def read_overrides(said: Mapping[str, Any]) -> dict[str, Any]:
    names = ("gpus_per_node", "nvlink_domain", "network_gbps", "gpu_memory_gb")
    return {name: said[name] for name in names if name in said}


def read_rates(said: Mapping[str, Any], price: str, pue: float) -> Callable[[Cluster], Rates]:
    """What GPU hours cost and how often they fail, for each cluster (kinds of GPU have their own price)."""
    from meshwright.planner.economics import Rates, read_price

    minutes = said.get("checkpoint_minutes")
    plain = Rates(
        pue=pue, gpu_mtbf_hours=said.get("mtbf_hours"), checkpoint_seconds=said.get("checkpoint_seconds"),
        restart_seconds=said.get("restart_seconds"), repair_hours=said.get("repair_hours"),
        checkpoint_interval=None if minutes is None else 60 * minutes, spare_nodes=said.get("spares", 0),
    )  # fmt: skip
    return lambda cluster: replace(plain, price=read_price(price, cluster.gpu) if price else None)


RATES = (
    "mtbf_hours", "checkpoint_seconds", "checkpoint_minutes", "restart_seconds", "repair_hours", "spares",
)  # fmt: skip


def read_cluster(gpus: str, said: Mapping[str, Any]) -> Cluster:
    """The cluster of `--gpus` with its overrides, or of `--cluster FILE`."""
    from meshwright.cluster.parse import parse_cluster

    if "cluster" in said:
        from meshwright.cluster.file import load_cluster

        return load_cluster(Path(said["cluster"]))
    if not gpus:
        raise QuestionError("say which GPUs: --gpus 64xH100 (or --cluster FILE)")
    return parse_cluster(gpus, **read_overrides(said))


def read_answer(source: str) -> dict[str, Any]:
    """The JSON of a plan or an estimate, from a file or standard input; of a plan, its first answer."""
    if source == "-":
        text = sys.stdin.read(MOST_JSON + 1)
    else:
        path = Path(source)
        if not path.is_file():
            raise QuestionError(f"there is no file {source}")
        with path.open(encoding="utf-8", errors="replace") as file:
            text = file.read(MOST_JSON + 1)
    if len(text) > MOST_JSON:
        raise QuestionError(f"{source} is larger than {MOST_JSON:,} characters; an answer is far smaller")
    try:
        data = json.loads(text)
    except ValueError as error:
        raise QuestionError(f"{source} is not JSON: {error}") from None
    if isinstance(data, dict) and data.get("plans"):
        data = data["plans"][0]
    if not isinstance(data, dict) or "layout" not in data or "cluster" not in data:
        raise QuestionError(f"{source} is not the JSON of `meshwright plan --json` or `estimate --json`")
    return data


def read_lengths(text: str) -> tuple[int, ...]:
    """Sequence lengths, separated by commas."""
    words = [word.strip() for word in text.split(",")]
    if not all(word.isdigit() and 0 < int(word) < 10**9 for word in words):
        raise QuestionError(f"--seq-lengths {text[:60]}: whole numbers separated by commas, as in 4096,8192")
    return tuple(int(word) for word in words)
