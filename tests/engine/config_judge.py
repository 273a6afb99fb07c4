"""Child process: what the installed TransformerConfig says to a list of configs.

Reads a JSON list of fields from stdin; writes for each "" (accepted), its error, or the name of a field
that this release does not have.
"""

from __future__ import annotations

import dataclasses
import json
import os
import sys
from typing import Any

BASE = {
    "num_layers": 32,
    "hidden_size": 4096,
    "num_attention_heads": 32,
    "num_query_groups": 8,
    "ffn_hidden_size": 14336,
    "gated_linear_unit": True,
    "add_bias_linear": False,
    "bf16": True,
    "apply_rope_fusion": False,
    "perform_initialization": False,
}
RENAMED = {"cuda_graph_modules": "cuda_graph_scope"}


def judge(kind: Any, fields: dict[str, Any]) -> dict[str, str]:
    import torch

    known = {field.name for field in dataclasses.fields(kind)}
    said = {RENAMED.get(name, name): value for name, value in fields.items()}
    unknown = sorted(set(said) - known)
    if unknown:
        return {"unknown": unknown[0]}
    said = {**BASE, "params_dtype": torch.bfloat16, "activation_func": torch.nn.functional.silu, **said}
    if said.get("pipeline_model_parallel_size", 1) > 1 and "pipeline_dtype" not in said:
        said["pipeline_dtype"] = torch.bfloat16
    try:
        kind(**said)
    # these are the ways in which Megatron Core refuses a config; NotImplementedError is one of its own
    except (AssertionError, ValueError, NotImplementedError, RuntimeError) as error:
        return {"error": f"{type(error).__name__}: {error}"}
    return {}


def main() -> None:
    replies = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what the engine prints must not mix with the reply
    from meshwright.verify.engine import patches

    patches.install()
    from megatron.core.transformer.transformer_config import TransformerConfig

    print(json.dumps([judge(TransformerConfig, fields) for fields in json.load(sys.stdin)]), file=replies)


if __name__ == "__main__":
    main()
