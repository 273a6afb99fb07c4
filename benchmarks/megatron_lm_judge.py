"""Child process: what Megatron-LM's own arguments.py says to command lines.

Run with the unpacked wheel (megatron-core >= 0.17.1 carries megatron/training) first on PYTHONPATH. Reads a
JSON list of {"world": N, "words": [...]} from stdin; writes for each "" or its refusal.
"""

from __future__ import annotations

import contextlib
import importlib.machinery
import io
import json
import os
import sys
import traceback
import types
import typing
from typing import Any


class Anything:
    """Stands for whatever a kernel module defines: it is imported, never run."""

    def __init__(self, *_: Any, **__: Any) -> None:
        pass

    def __call__(self, *positional: Any, **_: Any) -> Any:
        return positional[0] if positional and callable(positional[0]) else Anything()

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return Anything()

    def __getitem__(self, _: Any) -> Any:
        return self

    def __mro_entries__(self, _: Any) -> tuple[()]:
        return ()


def attribute(name: str) -> Anything:
    if name.startswith("__"):
        raise AttributeError(name)
    return Anything()


def stand_in_for_triton() -> None:
    for name in ("triton", "triton.language", "triton.runtime"):
        module = types.ModuleType(name)
        module.__spec__ = importlib.machinery.ModuleSpec(name, None)
        module.__path__ = []
        module.__dict__.update({"__version__": "3.0.0", "__getattr__": attribute})
        module.jit = lambda function=None, **_: function or (lambda f: f)
        module.autotune = module.heuristics = lambda *_, **__: lambda function: function
        sys.modules[name] = module
    sys.modules["triton"].language = sys.modules["triton.language"]


def load() -> Any:
    """parse, validate and config functions of Megatron-LM, over a torch without CUDA or kernels."""
    import torch
    import torch.utils._triton
    import typing_extensions

    from meshwright.verify.engine import patches, standin

    vars(typing).setdefault("override", typing_extensions.override)  # releases from 0.18 on want Python 3.12

    torch.utils._triton.has_triton_package = torch.utils._triton.has_triton = lambda *_, **__: False
    torch.compile = lambda model=None, **_: model if callable(model) else (lambda function: function)
    patches.patch_cuda()
    standin.install()
    stand_in_for_triton()
    from megatron.training.arguments import parse_args, validate_args

    try:
        from megatron.training.arguments import core_transformer_config_from_args as config
    except ImportError:
        from megatron.training.argument_utils import core_transformer_config_from_args as config
    from megatron.core.models.common.embeddings import rope_utils

    if getattr(rope_utils, "fused_apply_rotary_pos_emb", None) is None:
        rope_utils.fused_apply_rotary_pos_emb = lambda x, *_, **__: x
    return parse_args, validate_args, config


def judge(functions: Any, question: dict[str, Any]) -> str:
    parse_args, validate_args, config = functions
    os.environ.update(WORLD_SIZE=str(question["world"]), RANK="0", LOCAL_RANK="0")
    os.environ.pop("CUDA_DEVICE_MAX_CONNECTIONS", None)
    os.environ.update(question["env"])
    if "capability" in question:
        import torch

        major, minor = question["capability"]
        properties = torch.cuda.get_device_properties(0)
        properties.major, properties.minor = major, minor
        torch.cuda.get_device_capability = lambda *_: (major, minor)
        torch.cuda.get_device_properties = lambda *_, **__: properties
    sys.argv = ["pretrain_gpt.py", *question["words"]]
    out = io.StringIO()
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(out):
            arguments = parse_args()
            validate_args(arguments)
            config(arguments)
    except SystemExit:
        return "argparse: " + (out.getvalue().strip().splitlines() or ["?"])[-1][:200]
    except Exception as error:  # whatever it raises is the answer
        frame = traceback.extract_tb(error.__traceback__)[-1]
        words = str(error) or frame.line or ""
        return f"{type(error).__name__}: {words[:200]} [{os.path.basename(frame.filename)}:{frame.lineno}]"
    return ""


def main() -> None:
    replies = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    import logging

    functions = load()
    logging.disable(logging.CRITICAL)
    print(json.dumps([judge(functions, question) for question in json.load(sys.stdin)]), file=replies)


if __name__ == "__main__":
    main()
