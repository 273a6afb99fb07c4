"""Child process: what Megatron Bridge itself says to a recipe with overrides.

Run with the unpacked wheels of megatron-bridge and megatron-core first on PYTHONPATH. Packages that are
imported there but not needed for configurations (transformers, datasets, ...) are stood in for. Reads a JSON
list of {"recipe": name, "overrides": [...], "yaml": text or "", "world": N, "env": {...}, "ask": [dotted
names]} from stdin; writes for each {"refusal": "" or why, "values": {dotted name: value}}.
"""

from __future__ import annotations

import importlib
import importlib.abc
import importlib.machinery
import importlib.util
import json
import os
import re
import sys
import tempfile
import traceback
import types
import typing
from collections.abc import Sequence
from pathlib import Path
from typing import Any

ABSENT = frozenset(
    {"transformers", "datasets", "peft", "accelerate", "diffusers", "mistral_common", "wandb",
     "timm", "mlflow", "comet_ml", "open_clip", "qwen_vl_utils", "nvidia_resiliency_ext",
     "flashinfer", "fla", "triton", "tqdm", "torchvision", "safetensors", "modelopt", "nemo_run",
     "six", "regex", "PIL", "multistorageclient", "imageio", "av", "decord", "librosa",
     "soundfile", "tensorboard", "cosmos", "easydict", "ftfy", "requests", "sentencepiece",
     "tiktoken", "tokenizers", "torch.utils.tensorboard", "megatron.energon",
     "megatron.bridge.models.hf_pretrained", "megatron.bridge.models.conversion",
     "megatron.bridge.diffusion", "nvdlfw_inspect", "pandas", "pyarrow", "onelogger",
     "nv_one_logger", "boto3", "botocore", "s3fs"}
)  # fmt: skip


class Meta(type):
    """Classes whose attributes are classes again: enough to be imported, subclassed and annotated with."""

    def __getattr__(cls, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return fake(name)

    def __or__(cls, other: Any) -> Any:
        return cls

    def __ror__(cls, other: Any) -> Any:
        return cls

    def __iter__(cls) -> Any:
        return iter(())

    def __len__(cls) -> int:
        return 0


def fake(name: str) -> Any:
    def init(self: Any, *_: Any, **given: Any) -> None:
        self.__dict__.update(given)

    def call(self: Any, *positional: Any, **_: Any) -> Any:
        return positional[0] if positional and callable(positional[0]) else self

    return Meta(
        name, (), {"__init__": init, "__call__": call, "__class_getitem__": classmethod(lambda c, _: c)}
    )


class StandIn(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Finds modules of packages that are not installed."""

    def find_spec(self, name: str, path: Sequence[str] | None, target: Any = None) -> Any:
        top = name.split(".")[0]
        if top in ABSENT or any(name == a or name.startswith(f"{a}.") for a in ABSENT if "." in a):
            return importlib.machinery.ModuleSpec(name, self, is_package=True)
        return None

    def create_module(self, spec: Any) -> types.ModuleType:
        module = types.ModuleType(spec.name)
        module.__path__ = []
        module.__version__ = "99.0"

        def attribute(name: str) -> Any:
            if name.startswith("__"):
                raise AttributeError(name)
            found = fake(name)
            setattr(module, name, found)
            return found

        module.__getattr__ = attribute  # type: ignore[method-assign]
        return module

    def exec_module(self, module: types.ModuleType) -> None:
        pass


def load() -> tuple[Any, Any]:
    """(apply overrides, finish and validate) of Megatron Bridge."""
    import torch
    import torch.utils._triton
    import typing_extensions

    from meshwright.verify.engine import patches, standin

    vars(typing).setdefault("override", typing_extensions.override)
    torch.utils._triton.has_triton_package = torch.utils._triton.has_triton = lambda *_, **__: False
    torch.compile = lambda model=None, **_: model if callable(model) else (lambda function: function)
    patches.patch_cuda()
    standin.install()
    sys.meta_path.insert(0, StandIn())
    # The package's own start imports every model; configurations need none of that.
    shortcut("megatron.bridge", {}).AutoBridge = HubModels  # type: ignore[attr-defined]
    shortcut(
        "megatron.bridge.models",
        {
            "GPTModelProvider": "megatron.bridge.models.gpt_provider",
            "T5ModelProvider": "megatron.bridge.models.t5_provider",
            "MLAModelProvider": "megatron.bridge.models.mla_provider",
        },
    )
    shortcut("megatron.bridge.recipes", {})
    shortcut("megatron.bridge.perf_recipes", {})
    from megatron.bridge.training.config import runtime_config_update
    from megatron.bridge.training.utils.omegaconf_utils import process_config_with_overrides

    kernels()
    return process_config_with_overrides, runtime_config_update


def kernels() -> None:
    """Transformer Engine's kernels, which configurations only ask for to see whether they are there."""
    from megatron.core.models.common.embeddings import rope_utils
    from megatron.core.transformer.moe import moe_utils

    rope_utils.fused_apply_rotary_pos_emb = rope_utils.fused_apply_rotary_pos_emb_thd = lambda x, *_, **__: x
    for name in ("permute", "permute_with_probs", "sort_chunks_by_index", "sort_chunks_by_index_with_probs",
                 "unpermute"):  # fmt: skip
        setattr(moe_utils, f"fused_{name}", lambda x, *_, **__: x)

    class FusedAdam:
        def __init__(self, params: Any, exp_avg_dtype: Any = None, exp_avg_sq_dtype: Any = None,
                     master_weight_dtype: Any = None, use_decoupled_grad: bool = False,
                     store_param_remainders: bool = False) -> None:  # fmt: skip
            pass

    optimizers = types.ModuleType("transformer_engine.pytorch.optimizers")
    optimizers.FusedAdam = FusedAdam  # type: ignore[attr-defined]
    sys.modules[optimizers.__name__] = optimizers


def shortcut(name: str, where: dict[str, str]) -> types.ModuleType:
    """A package that has not run its own start: names come from their modules, others are stood in for."""
    spec = importlib.util.find_spec(name)
    assert spec is not None
    package = types.ModuleType(name)
    package.__path__ = list(spec.submodule_search_locations or [])

    def attribute(wanted: str) -> Any:
        if wanted.startswith("__"):
            raise AttributeError(wanted)
        if wanted in where:
            return getattr(importlib.import_module(where[wanted]), wanted)
        return fake(wanted)

    package.__getattr__ = attribute  # type: ignore[method-assign]
    sys.modules[name] = package
    return package


class HubModels:
    """Stands for AutoBridge: the hub is out of reach, so shapes come from Meshwright's catalog."""

    def __init__(self, name: str) -> None:
        self.name = name

    @classmethod
    def from_hf_pretrained(cls, name: str, *_: Any, **__: Any) -> HubModels:
        return cls(name)

    def to_megatron_provider(self, *_: Any, **__: Any) -> Any:
        import dataclasses

        from megatron.bridge.models.gpt_provider import GPTModelProvider
        from megatron.bridge.models.mla_provider import MLAModelProvider

        from meshwright.frameworks.plan import architecture_of
        from meshwright.model.catalog import find

        shape = architecture_of(find(self.name))
        kind = MLAModelProvider if shape.get("multi_latent_attention") else GPTModelProvider
        fields = {field.name for field in dataclasses.fields(kind)}
        given = {name: value for name, value in shape.items() if name in fields}
        given["gated_linear_unit"] = bool(shape.get("swiglu"))
        return kind(**{**given, "bf16": True})


def find_recipe(name: str) -> Any:
    """The function that is defined (or named anew) under this name; only its own module is imported."""
    said = re.compile(rf"^def {re.escape(name)}\(|\bas {re.escape(name)}\b", re.MULTILINE)
    for group in ("recipes", "perf_recipes"):
        package = sys.modules[f"megatron.bridge.{group}"]
        for folder in package.__path__:
            for file in sorted(Path(folder).rglob("*.py")):
                if said.search(file.read_text(encoding="utf-8")):
                    parts = file.relative_to(folder).with_suffix("").parts
                    parts = parts[:-1] if parts[-1] == "__init__" else parts
                    module = importlib.import_module(".".join(["megatron.bridge", group, *parts]))
                    return getattr(module, name)
    raise LookupError(f"no recipe {name}")


def main() -> None:
    replies = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    functions = load()
    print(json.dumps([judge(functions, question) for question in json.load(sys.stdin)]), file=replies)


def plain(value: Any) -> Any:
    """A value as JSON takes it; enumerations and types by their name."""
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    return (
        value
        if isinstance(value, (int, float, str, bool, type(None)))
        else getattr(value, "name", str(value))
    )


def judge(functions: tuple[Any, Any], question: dict[str, Any]) -> dict[str, Any]:
    process, update = functions
    before = dict(os.environ)
    os.environ.update(WORLD_SIZE=str(question["world"]), RANK="0", LOCAL_RANK="0")
    os.environ.update(question["env"])
    values: dict[str, Any] = {}
    try:
        config = find_recipe(question["recipe"])()
        with tempfile.TemporaryDirectory() as folder:
            file = None
            if question.get("yaml"):
                file = str(Path(folder, "overrides.yaml"))
                Path(file).write_text(question["yaml"])
            process(config, config_filepath=file, cli_overrides=question["overrides"] or None)
        update(config)
        for name in question["ask"]:
            found: Any = config
            for part in name.split("."):
                found = getattr(found, part)
            values[name] = plain(found)
    except Exception as error:
        frame = traceback.extract_tb(error.__traceback__)[-1]
        where = f"{os.path.basename(frame.filename)}:{frame.lineno}"
        if os.environ.get("JUDGE_TRACE"):
            traceback.print_exc()
        return {"refusal": f"{type(error).__name__}: {str(error)[:400]} [{where}]", "values": {}}
    finally:
        os.environ.clear()
        os.environ.update(before)
    return {"refusal": "", "values": values}


if __name__ == "__main__":
    main()
