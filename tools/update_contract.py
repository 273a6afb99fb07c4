"""Record the contract: keys and types of every `--json` answer, and signatures of the public Python names.

    python tools/update_contract.py          write tests/contract/
    python tools/update_contract.py --check  exit 1 where something was removed, renamed or changed its type

What is recorded only grows within a major version (docs/versioning.md).
"""

from __future__ import annotations

import inspect
import io
import json
import os
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import redirect_stderr, redirect_stdout
from enum import Enum
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
FOLDER = ROOT / "tests" / "contract"
LOGS = ROOT / "tests" / "verify" / "data" / "logs"
SCRIPT = """\
export CUDA_DEVICE_MAX_CONNECTIONS=1
torchrun --nproc_per_node=8 --nnodes=2 pretrain_gpt.py --num-layers 32 --hidden-size 4096 \\
  --num-attention-heads 32 --seq-length 4096 --max-position-embeddings 4096 --micro-batch-size 1 \\
  --global-batch-size 64 --bf16 --tensor-model-parallel-size {tp} --sequence-parallel \\
  --use-distributed-optimizer --lr 1e-4 --train-iters 10 --mock-data
"""
QUESTIONS: Mapping[str, Sequence[str]] = {
    "plan": (
        "plan llama3-8b --gpus 16xH100 --top 2",
        "plan qwen3-30b-a3b --gpus 16xH100 --top 1",
        "plan llama3-70b --gpus 8xH100 --top 1",
    ),
    "plan-sizes": ("plan llama3-8b --gpus 8,16xH100 --price 2 --tokens 1e12",),
    "plan-why-not": (
        "plan llama3-8b --gpus 16xH100 --why-not tp=8,pp=2",
        "plan llama3-8b --gpus 16xH100 --why-not tp=3",
    ),
    "fit": ("fit llama3-8b --gpu H100 --top 1",),
    "fit-most": (
        "fit llama3-8b --gpus 8xH100 --longest-sequence",
        "fit llama3-8b --gpus 8xH100 --tp 2 --largest-micro-batch",
    ),
    "estimate": (
        "estimate llama3-8b --gpus 16xH100 --tp 2 --pp 2 --vpp 2",
        "estimate qwen3-30b-a3b --gpus 16xH100 --ep 8",
        "estimate llama3-8b --gpus 8xH100 --tp 3",
        "estimate llama3-70b --gpus 8xH100",
        "estimate llama3-8b --gpus 16xH100 --tp 4 --memory --explain",
    ),
    "oom": ("oom oom.log", "oom oom.log llama3-70b --gpus 64xH100 --tp 4 --pp 4"),
    "check": ("check old.sh --gpus 16xH100", "check new.sh --gpus 8xH100"),
    "check-resume-from": ("check new.sh --resume-from old.sh",),
    "compare": ("compare old.sh new.sh",),
    "ranks": ("ranks --world-size 16 --tp 2 --pp 2 --ep 4",),
    "advise": ("advise deepseek-v3 --gpus 256 --tp 2 --pp 16 --ep 64", "advise llama3-8b --gpus 16 --tp 2"),
    "models": ("models llama",),
    "gpus": ("gpus",),
    "explain": tuple(
        f"explain {rule}"
        for rule in (
            "ep-divides-experts",
            "world-divides-expert-grid",
            "tp-divides-kv-heads",
            "gtp-mxfp8",
            "gtp-priority-streams",
            "capacity-balancing",
            "ep-needs-experts",
        )
    ),
    "write": ("write llama3-8b --gpus 16xH100 --tp 2 --to megatron-lm",),
    "convert": ("convert old.sh --to megatron-bridge",),
    "convert-gpus": ("convert old.sh --gpus 32xH100",),
    "verify-log": ("verify --log pass.log", "verify --log oom.log"),
    "profile": ("profile --show runs",),
    "calibrate": ("calibrate --show --out learned.json",),
}
"""Commands whose answers make up each contract; `--json` is added."""
PREPARE = (
    "profile llama3-8b --gpus 16xH100 --top 2 --out runs --dry-run",
    "estimate llama3-70b --gpus 64xH100 --tp 8 --pp 4 --seq-length 4096 --gbs 128 --json > ran.json",
    "calibrate pass.log --plan ran.json --out learned.json",
)
OPAQUE = ("description", "value", "data")
"""Keys whose value may be anything, or is for Meshwright itself to read."""
MAPS = (
    "resolved",
    "files",
    "changes",
    "breaks",
    "passes",
    "refused",
    "factors",
    "options",
    "environment",
    "changed",
    "differs",
    "max_allocated_bytes",
    "peak",
    "peak_flops",
)
"""Keys that hold a table by names of their own: one shape for all its values."""


def run(words: Sequence[str]) -> str:
    """What a command prints; its exit status is not part of the contract of an answer."""
    from meshwright.cli.main import main

    printed = io.StringIO()
    kept, sys.argv = sys.argv, ["meshwright", *words]
    try:
        with redirect_stdout(printed), redirect_stderr(io.StringIO()):
            main()
    except SystemExit:
        pass
    finally:
        sys.argv = kept
    return printed.getvalue()


def shape(data: Any, path: str = "") -> Iterator[tuple[str, str]]:
    """(path, type) of every value: `memory.per_stage[].total_bytes`, `number`."""
    name = path.rsplit(".", 1)[-1]
    if name in OPAQUE:
        yield path, "any"
    elif isinstance(data, Mapping):
        yield path, "object"
        for key, value in data.items():
            inner = "*" if name in MAPS else str(key)
            yield from shape(value, f"{path}.{inner}".lstrip("."))
    elif isinstance(data, list):
        yield path, "array"
        for value in data:
            yield from shape(value, f"{path}[]")
    else:
        kinds = {bool: "boolean", int: "number", float: "number", str: "string", type(None): "null"}
        yield path, kinds[type(data)]


def answers() -> dict[str, dict[str, list[str]]]:
    """{contract: {path: types}} of every question."""
    found: dict[str, dict[str, list[str]]] = {}
    here = Path.cwd()
    with tempfile.TemporaryDirectory() as folder:
        try:
            os.chdir(folder)
            _prepare(Path(folder))
            for name, lines in QUESTIONS.items():
                seen: dict[str, set[str]] = {}
                for line in lines:
                    text = run([*line.split(), "--json"])
                    try:
                        data = json.loads(text)
                    except ValueError:
                        raise SystemExit(f"{line} --json printed no JSON: {text[:200]!r}") from None
                    for path, kind in shape(data):
                        seen.setdefault(path or "(answer)", set()).add(kind)
                found[name] = {path: sorted(kinds) for path, kinds in sorted(seen.items())}
        finally:
            os.chdir(here)
    return found


def _prepare(folder: Path) -> None:
    (folder / "old.sh").write_text(SCRIPT.format(tp=2))
    (folder / "new.sh").write_text(SCRIPT.format(tp=4))
    (folder / "pass.log").write_bytes((LOGS / "mlm_pass.log").read_bytes())
    (folder / "oom.log").write_bytes((LOGS / "mlm_oom_last_stage.log").read_bytes())
    for line in PREPARE:
        words, _, file = line.partition(" > ")
        text = run(words.split())
        if file:
            (folder / file).write_text(text)


def names() -> dict[str, Any]:
    """{public name: what it is and what it takes}."""
    import meshwright

    return {
        name: _signature(getattr(meshwright, name)) for name in meshwright.__all__ if name != "__version__"
    }


def _signature(value: Any) -> dict[str, Any]:
    if inspect.isclass(value) and issubclass(value, BaseException):
        return {"kind": "exception", "bases": [base.__name__ for base in value.__mro__[1:-2]]}
    row: dict[str, Any] = {"kind": "class" if inspect.isclass(value) else "function"}
    row["parameters"] = [
        {"name": one.name, "kind": one.kind.name.lower(), "optional": one.default is not one.empty}
        for one in inspect.signature(value).parameters.values()
    ]
    if inspect.isclass(value) and not issubclass(value, Enum):
        row["attributes"] = sorted(
            name
            for name, one in inspect.getmembers(value)
            if not name.startswith("_") and (callable(one) or isinstance(one, property))
        )
    return row


def broken_answers(
    old: Mapping[str, Mapping[str, Sequence[str]]], new: Mapping[str, Mapping[str, Sequence[str]]]
) -> list[str]:
    """What a program that reads the old answers would stumble over."""
    found = []
    for name, paths in old.items():
        for path, kinds in paths.items():
            now = new.get(name, {}).get(path)
            if now is None:
                found.append(f"{name}: {path} is gone")
            elif kinds != ["null"] and (surprise := set(now) - set(kinds)):
                found.append(
                    f"{name}: {path} was {'|'.join(kinds)} and may now be {'|'.join(sorted(surprise))}"
                )
    return found


def broken_names(old: Mapping[str, Any], new: Mapping[str, Any]) -> list[str]:
    """What a program that calls the old names would stumble over."""
    found = []
    for name, row in old.items():
        if name not in new:
            found.append(f"{name} is gone")
            continue
        now = new[name]
        if now["kind"] != row["kind"]:
            found.append(f"{name} was a {row['kind']} and is a {now['kind']}")
        found += [
            f"{name}: {base} is no longer a base"
            for base in row.get("bases", ())
            if base not in now.get("bases", ())
        ]
        found += [
            f"{name}.{one} is gone"
            for one in row.get("attributes", ())
            if one not in now.get("attributes", ())
        ]
        found += _broken_call(name, row.get("parameters", []), now.get("parameters", []))
    return found


def _broken_call(
    name: str, old: Sequence[Mapping[str, Any]], new: Sequence[Mapping[str, Any]]
) -> Iterator[str]:
    by_name = {one["name"]: one for one in new}
    for one in old:
        now = by_name.get(one["name"])
        if now is None:
            yield f"{name}({one['name']}) is gone"
        elif now["kind"] != one["kind"]:
            yield f"{name}({one['name']}) was {one['kind']} and is {now['kind']}"
        elif one["optional"] and not now["optional"]:
            yield f"{name}({one['name']}) must now be given"
    positional = [
        [one["name"] for one in side if one["kind"].startswith("positional")] for side in (old, new)
    ]
    if positional[0] != positional[1][: len(positional[0])]:
        yield f"{name}: positional arguments were {positional[0]} and are {positional[1]}"
    known = {one["name"] for one in old}
    yield from (
        f"{name}({one['name']}) is new and must be given"
        for one in new
        if one["name"] not in known and not one["optional"]
    )


def recorded() -> tuple[dict[str, Any], dict[str, Any]]:
    """The committed answers and names."""
    kept = {path.stem: json.loads(path.read_text(encoding="utf-8")) for path in FOLDER.glob("*.json")}
    public = kept.pop("python", {})
    return kept, public


def main() -> int:
    new_answers, new_names = answers(), names()
    if "--check" in sys.argv:
        old_answers, old_names = recorded()
        found = [*broken_answers(old_answers, new_answers), *broken_names(old_names, new_names)]
        print("\n".join(found))
        return int(bool(found))
    FOLDER.mkdir(parents=True, exist_ok=True)
    for name, content in {**new_answers, "python": new_names}.items():
        (FOLDER / f"{name}.json").write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
