"""Child process: what Megatron Core says about pipeline layouts.

Reads {"layouts": [...], "splits": [...]} from stdin. For each layout (text, pp, layers, mtp) it writes
the chunks of every rank, or the error; for each split (options of TransformerConfig) the layers of
every chunk of every rank, or the error.
"""

from __future__ import annotations

import json
import logging
import sys
import warnings
from typing import Any

warnings.simplefilter("ignore")

import torch  # noqa: E402
from megatron.core.transformer.pipeline_parallel_layer_layout import (  # noqa: E402
    PipelineParallelLayerLayout,
)
from megatron.core.transformer.transformer_block import get_num_layers_to_build  # noqa: E402
from megatron.core.transformer.transformer_config import TransformerConfig  # noqa: E402

logging.disable(logging.CRITICAL)


def judge_layout(case: dict[str, Any]) -> dict[str, Any]:
    try:
        layout = PipelineParallelLayerLayout(case["layout"], case["pp"])
        apart = layout.validate_layer_layout(case["layers"], case["mtp"])
    # these are the ways in which Megatron Core refuses a layout; NotImplementedError is one of its own
    except (AssertionError, NotImplementedError, IndexError, ValueError) as error:
        return {"error": f"{type(error).__name__}: {error}"[:200]}
    names = [[[item.name for item in chunk] for chunk in rank] for rank in layout.layout]
    return {"ranks": names, "mtp_apart": apart}


def judge_split(options: dict[str, Any]) -> dict[str, Any]:
    pp, vpp = options["pipeline_model_parallel_size"], options["virtual_pipeline_model_parallel_size"]
    try:
        config = TransformerConfig(
            hidden_size=8, num_attention_heads=1, pipeline_dtype=torch.float32, **options
        )
        counts = [
            [get_num_layers_to_build(config, vp_stage=chunk, pp_rank=rank) for chunk in range(vpp or 1)]
            for rank in range(pp)
        ]
    except (AssertionError, ValueError) as error:
        return {"error": f"{type(error).__name__}: {error}"[:200]}
    return {"layers": counts}


if __name__ == "__main__":
    asked = json.load(sys.stdin)
    answers = {
        "layouts": [judge_layout(case) for case in asked["layouts"]],
        "splits": [judge_split(options) for options in asked["splits"]],
    }
    print(json.dumps(answers))
