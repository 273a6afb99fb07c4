"""Random configs, judged by the rules and by Megatron Core itself: every disagreement in a dated report.

    python benchmarks/differential.py [--configs 2000] [--seed 0] [--report DIR]

Megatron Core's verdict is that of its TransformerConfig, initialize_model_parallel on a fake process group,
the model of first, middle and last stage built on the meta device, and the checks before the first forward
pass. The rules judge as of the installed version. The two must agree on whether a config can start.
"""

from __future__ import annotations

import argparse
import collections
import datetime
import importlib.metadata
import itertools
import json
import math
import random
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from meshwright.layout.rules import View, examine, rule
from meshwright.verify.process import EngineError, EngineProcess

Options = dict[str, Any]
VOCABULARY = 1536
HEAD = 16


@dataclass(frozen=True)
class Judgement:
    """One config and both verdicts.

    rules   error rules it breaks
    engine  the engine's own words; empty when it starts, None when this machine lacks a part it needs
    """

    seed: int
    options: Options
    rules: tuple[str, ...]
    engine: str | None

    @property
    def agree(self) -> bool:
        """Whether both say the same; what this machine cannot decide counts as agreement."""
        return self.engine is None or bool(self.rules) == bool(self.engine)


LATER = {
    "topk-within-experts": "the router chooses at the first forward pass, which is not run here",
    "mtp-uniform-recompute": "the MTP module asserts it when it runs, and none is run here",
    "fp8-sequence-multiple": "fp8 kernels refuse the shape, and none is run here",
    "mlp-recompute-needs-no-bias": "the backward pass calls itself, and none is run here",
    "a2a-divides-heads": "Transformer Engine's attention divides the heads, and a stand-in is in its place",
}
"""Rules that stop a job after the last thing the engine is asked for here; so do all that say a job starts
and trains wrongly."""

NOT_HERE = (
    "fused_weight_gradient_mlp_cuda module is not found",
    "runs on GPUs only",
    "CPU Offloading is enabled when TE is not present",  # Transformer Engine's offload is not stood in for
    "RNG tracker does not support cudagraphs",  # the trainer chooses the tracker
    "couldn't find attribute build_schedule_plan",  # the schedule has begun: the stub has no layers to run
)
"""Refusals of this machine, not of the config."""


# Drawing. Degrees and splits are mostly legal by construction (never by asking the rules), and each
# feature then changes a few options, often wrongly.


def draw(seed: int) -> Options:
    """One random config in Megatron's names."""
    dice = random.Random(seed)
    options = draw_model(dice)
    options |= draw_degrees(dice, options)
    options |= draw_split(dice, options)
    for feature in dice.sample(FEATURES, dice.choice((0, 0, 1, 1, 1, 2))):
        options |= feature(dice, options)
    return options | draw_batch(dice, options)


def mostly(dice: random.Random, usual: Any, unusual: Any, share: float = 0.95) -> Any:
    """The usual value, or with a small probability the unusual one."""
    return usual if dice.random() < share else unusual


def draw_model(dice: random.Random) -> Options:
    groups = dice.choice((1, 2, 2, 4, 4, 6, 8))
    heads = groups * dice.choice((1, 2, 2, 4, 7))
    options: Options = {
        "num_attention_heads": heads,
        "num_query_groups": groups,
        "kv_channels": HEAD,
        "hidden_size": mostly(dice, heads * HEAD, heads * HEAD + 8),
        "ffn_hidden_size": mostly(dice, dice.choice((96, 192, 384)), 250),
        "add_bias_linear": False,
        "bf16": True,
        "vocab_size": mostly(dice, VOCABULARY, VOCABULARY + 1, 0.97),
    }
    if dice.random() < 0.15:
        options["mtp_num_layers"] = dice.choice((1, 1, 2))
    return options | (draw_experts(dice) if dice.random() < 0.5 else {})


def draw_experts(dice: random.Random) -> Options:
    topk = dice.choice((1, 2, 2, 4))
    options: Options = {
        "num_moe_experts": dice.choice((4, 6, 8, 8, 12, 24)),
        "moe_router_topk": mostly(dice, topk, 8),
        "moe_ffn_hidden_size": mostly(dice, dice.choice((48, 96)), 50),
        "moe_token_dispatcher_type": dice.choice(("alltoall", "alltoall", "allgather")),
        "moe_router_dtype": "fp32",
        "moe_grouped_gemm": dice.random() < 0.5,
    }
    if dice.random() < 0.2:
        options["moe_shared_expert_intermediate_size"] = 96
    if topk == 1:
        options["moe_router_pre_softmax"] = mostly(dice, True, False, 0.9)
    return options


def draw_degrees(dice: random.Random, model: Options) -> Options:
    heads, groups, width = (model[k] for k in ("num_attention_heads", "num_query_groups", "ffn_hidden_size"))
    sizes = (1, 2, 3, 4, 6, 8)
    fitting = [t for t in sizes if heads % t == 0 and (groups % t == 0 or t % groups == 0) and width % t == 0]
    tp = mostly(dice, dice.choice(fitting), dice.choice(sizes), 0.93)
    experts = model.get("num_moe_experts")
    shares = [ep for ep in (1, 2, 3, 4) if experts and experts % ep == 0] or [1]
    pp = dice.choice((1, 1, 2, 2, 3, 4))
    vpp = dice.choice((None, None, 2, 2, 3)) if pp > 1 else None
    return {
        "tensor_model_parallel_size": tp,
        "pipeline_model_parallel_size": pp,
        "context_parallel_size": dice.choice((1, 1, 1, 2, 2, 3, 4)),
        "expert_model_parallel_size": mostly(dice, dice.choice(shares), dice.choice((2, 3, 5))),
        "expert_tensor_parallel_size": dice.choice((None, 1, 1, 1, 2, tp)),
        "virtual_pipeline_model_parallel_size": mostly(dice, vpp, dice.choice((1, 2)), 0.96),
        "sequence_parallel": mostly(dice, tp > 1, tp == 1, 0.93),
        "pipeline_dtype": mostly(dice, "bf16", None, 0.98),
    }


def draw_split(dice: random.Random, options: Options) -> Options:
    """Layers shared evenly, with first/last stages, with the ends accounted for, or by a layout string."""
    pp, vpp = options["pipeline_model_parallel_size"], options["virtual_pipeline_model_parallel_size"]
    chunks, each = vpp or 1, dice.choice((1, 2, 3))
    kind = dice.choice(("even", "even", "ends", "account", "layout")) if pp > 1 else "even"
    split: Options = {"num_layers": pp * chunks * each}
    if kind == "ends":
        ends = dice.choice((("first",), ("last",), ("first", "last")))
        sizes = {
            end: mostly(dice, chunks * dice.choice((1, 2)), dice.choice((0, 1, 3)), 0.85) for end in ends
        }
        split = {f"num_layers_in_{end}_pipeline_stage": size for end, size in sizes.items()}
        split["num_layers"] = (pp - len(ends)) * chunks * each + sum(sizes.values())
    elif kind == "account":
        flags = {end: dice.random() < 0.7 for end in ("embedding", "loss")}
        split = {f"account_for_{end}_in_pipeline_split": flag for end, flag in flags.items()}
        split["num_layers"] = pp * chunks * each - sum(flags.values())
    layers = max(split["num_layers"], 1)
    split["num_layers"] = mostly(dice, layers, layers + dice.choice((1, 2)), 0.92)
    if kind == "layout":
        stages = pp * (vpp or dice.choice((1, 1, 2)))
        split["pipeline_model_parallel_layout"] = draw_layout(dice, options | split, stages)
    interleaved = bool(vpp) or "|" * (2 * pp - 1) in split.get("pipeline_model_parallel_layout", "")
    overlap = mostly(dice, interleaved and dice.random() < 0.5, dice.random() < 0.5, 0.93)
    return split | {"overlap_p2p_comm": overlap, "batch_p2p_comm": mostly(dice, not overlap, overlap)}


def draw_layout(dice: random.Random, options: Options, stages: int) -> str:
    """A layout string that is mostly right."""
    layers = max(options["num_layers"] + mostly(dice, 0, dice.choice((1, -1)), 0.92), 0)
    least = min(layers, 1 if options.get("num_moe_experts") else 0)  # rank 0 is where experts are run
    bounds = [0, *sorted(dice.randint(least, layers) for _ in range(stages - 1)), layers]
    chunks = ["t" * (stop - start) for start, stop in itertools.pairwise(bounds)]
    chunks[0] = "E" + chunks[0]
    chunks[mostly(dice, -1, len(chunks) // 2, 0.8)] += "m" * (options.get("mtp_num_layers") or 0)
    chunks[-1] += "L"
    text = "|".join(chunks)
    return mostly(dice, text, text.replace("t", dice.choice(("x", "T", "")), 1))


def draw_batch(dice: random.Random, options: Options) -> Options:
    tp, pp = options["tensor_model_parallel_size"], options["pipeline_model_parallel_size"]
    cp, ep = options["context_parallel_size"], options["expert_model_parallel_size"]
    dense, expert = tp * pp * cp, (options["expert_tensor_parallel_size"] or tp) * ep * pp
    world = math.lcm(dense, expert) * dice.choice((1, 1, 2))
    if dice.random() < 0.08:
        world = max(1, world + dice.choice((-1, 1, dense)))
    micro = dice.choice((1, 1, 2))
    share = max(world // dense, 1) * micro
    microbatches = dice.choice((1, pp, 2 * pp, 2 * pp, 2 * pp + 1, 4 * pp))
    step = 2 * cp * tp
    return {
        "world_size": world,
        "micro_batch_size": micro,
        "global_batch_size": share * microbatches + (dice.random() < 0.06),
        "seq_length": step * dice.choice((8, 16)) + (dice.choice((1, 2)) if dice.random() < 0.06 else 0),
    }


def recompute(dice: random.Random, options: Options) -> Options:
    modules = ("core_attn", "mlp", "moe", "moe_act", "layernorm", "mla_up_proj", "shared_experts", "attn")
    return {
        "recompute_granularity": dice.choice(("full", "full", "selective", "selective", "half")),
        "recompute_method": dice.choice((None, "uniform", "block")),
        "recompute_num_layers": dice.choice((None, 1, 2)),
        "recompute_modules": dice.sample(modules, dice.choice((1, 1, 2))),
    }


def selective(dice: random.Random, options: Options) -> Options:
    chosen = recompute(dice, options)["recompute_modules"]
    return {"recompute_granularity": "selective", "recompute_modules": chosen}


def saved(dice: random.Random, options: Options) -> Options:
    return {
        "distribute_saved_activations": True,
        "recompute_granularity": "full",
        "recompute_method": "uniform",
        "recompute_num_layers": 1,
    }


def capacity(dice: random.Random, options: Options) -> Options:
    return {
        "moe_expert_capacity_factor": dice.choice((None, 1.0, -1.0)),
        "moe_pad_expert_input_to_capacity": dice.random() < 0.6,
        "moe_router_load_balancing_type": dice.choice(("aux_loss", "sinkhorn", "none", "seq_aux_loss")),
    }


def router(dice: random.Random, options: Options) -> Options:
    return {
        "moe_router_enable_expert_bias": dice.random() < 0.5,
        "moe_router_score_function": dice.choice(("softmax", "sigmoid")),
        "moe_router_pre_softmax": dice.random() < 0.5,
    }


def routing_groups(dice: random.Random, options: Options) -> Options:
    return {
        "moe_router_num_groups": dice.choice((None, 2, 3, 4)),
        "moe_router_group_topk": dice.choice((1, 2, 4)),
    }


def expert_overlap(dice: random.Random, options: Options) -> Options:
    even = (options.get("num_moe_experts") or 1) % 2 == 0
    return {
        "overlap_moe_expert_parallel_comm": dice.random() < 0.8,
        "delay_wgrad_compute": dice.random() < 0.3,
        "ep_overlap_early_attn_memory_release": dice.random() < 0.1,
        "moe_token_dispatcher_type": mostly(dice, "alltoall", "allgather", 0.8),
        "moe_shared_expert_overlap": dice.random() < 0.15,
        "expert_model_parallel_size": mostly(dice, 2 if even else 1, 1, 0.9),
        "mtp_num_layers": dice.choice((None, None, 1, 2)),
    }


def shared_overlap(dice: random.Random, options: Options) -> Options:
    return {
        "moe_shared_expert_intermediate_size": 64,
        "moe_shared_expert_overlap": True,
        "moe_token_dispatcher_type": dice.choice(("alltoall", "allgather")),
    }


def biases(dice: random.Random, options: Options) -> Options:
    return {"add_bias_linear": True}


def offload(dice: random.Random, options: Options) -> Options:
    return {
        "cpu_offloading": True,
        "cpu_offloading_num_layers": dice.choice((0, 1, options["num_layers"] - 1, options["num_layers"])),
    }


def fine_offload(dice: random.Random, options: Options) -> Options:
    modules = (
        "core_attn",
        "attn_proj",
        "attn_norm",
        "mlp_norm",
        "qkv_linear",
        "expert_fc1",
        "moe_act",
        "mlp",
    )
    return {
        "fine_grained_activation_offloading": True,
        "offload_modules": dice.sample(modules, dice.choice((1, 2))),
    }


def graphs(dice: random.Random, options: Options) -> Options:
    modules = ("attn", "mlp", "moe", "moe_router", "moe_preprocess")
    return {
        "cuda_graph_impl": dice.choice(("transformer_engine", "transformer_engine", "local")),
        "cuda_graph_modules": dice.sample(modules, dice.choice((1, 1, 2))),
    }


def deferred(dice: random.Random, options: Options) -> Options:
    return {
        "defer_embedding_wgrad_compute": True,
        "gradient_accumulation_fusion": dice.random() < 0.5,
        "wgrad_deferral_limit": dice.choice((0, 2, -1)),
    }


def warmup_flush(dice: random.Random, options: Options) -> Options:
    return {
        "overlap_p2p_comm_warmup_flush": True,
        "overlap_p2p_comm": dice.random() < 0.6,
        "batch_p2p_comm": dice.random() < 0.4,
    }


def groups_of_microbatches(dice: random.Random, options: Options) -> Options:
    pp = options["pipeline_model_parallel_size"]
    return {"microbatch_group_size_per_vp_stage": dice.choice((1, pp, pp + 1, 2 * pp))}


def formats(dice: random.Random, options: Options) -> Options:
    return {"fp16": dice.random() < 0.4, "bf16": dice.random() < 0.6, "fp8_param": dice.random() < 0.4}


def fp8(dice: random.Random, options: Options) -> Options:
    return {
        "fp8": "hybrid",
        "fp8_recipe": dice.choice(("delayed", "tensorwise")),
        "first_last_layers_bf16": dice.random() < 0.5,
        "num_layers_at_start_in_bf16": dice.choice((0, 1, 3)),
        "num_layers_at_end_in_bf16": dice.choice((0, 1, 9)),
        "moe_router_padding_for_quantization": dice.random() < 0.3,
    }


def padding(dice: random.Random, options: Options) -> Options:
    return {"moe_router_padding_for_quantization": True}


def varying(dice: random.Random, options: Options) -> Options:
    return {"variable_seq_lengths": True}


def no_rope(dice: random.Random, options: Options) -> Options:
    return {"no_rope_freq": dice.choice((2, 3, 4))}


def per_layer_cp(dice: random.Random, options: Options) -> Options:
    return {"cp_comm_type": ["p2p"] * (options["num_layers"] + dice.choice((0, 0, 1)))}


def instances(dice: random.Random, options: Options) -> Options:
    return {"num_distributed_optimizer_instances": dice.choice((2, 3)), "use_distributed_optimizer": True}


def other_order(dice: random.Random, options: Options) -> Options:
    orders = ("tp-cp-ep-pp-dp", "tp-cp-ep-pp-dp", "tp-cp-pp-ep-dp", "tp-ep-dp-pp", "cp-tp-ep-dp-pp")
    return {"order": dice.choice(orders)}


def hierarchy(dice: random.Random, options: Options) -> Options:
    return {"cp_comm_type": "a2a+p2p", "hierarchical_context_parallel_sizes": [2, 2]}


def latent(dice: random.Random, options: Options) -> Options:
    """Multi-latent attention, whose down projections the stand-in follows."""
    return {
        "multi_latent_attention": True,
        "num_query_groups": options["num_attention_heads"],
        "q_lora_rank": 32,
        "kv_lora_rank": 16,
        "qk_head_dim": HEAD,
        "qk_pos_emb_head_dim": 8,
        "v_head_dim": HEAD,
        "rope_type": "rope",
        "qk_layernorm": True,
    }


Feature = Callable[[random.Random, Options], Options]
FEATURES: tuple[Feature, ...] = (
    recompute,
    selective,
    saved,
    capacity,
    router,
    routing_groups,
    expert_overlap,
    expert_overlap,
    shared_overlap,
    biases,
    offload,
    fine_offload,
    graphs,
    graphs,
    deferred,
    warmup_flush,
    groups_of_microbatches,
    formats,
    fp8,
    padding,
    varying,
    no_rope,
    per_layer_cp,
    instances,
    other_order,
    hierarchy,
    latent,
)


# Judging.

MESH = (
    "tensor_model_parallel_size",
    "pipeline_model_parallel_size",
    "virtual_pipeline_model_parallel_size",
    "context_parallel_size",
    "expert_model_parallel_size",
    "expert_tensor_parallel_size",
    "num_distributed_optimizer_instances",
    "hierarchical_context_parallel_sizes",
    "order",
)
NOT_CONFIG = {
    "world_size",
    "micro_batch_size",
    "global_batch_size",
    "seq_length",
    "vocab_size",
    "order",
    "num_distributed_optimizer_instances",
    "use_distributed_optimizer",
}
RENAMED = {
    "cuda_graph_modules": "cuda_graph_scope",
    "moe_router_padding_for_quantization": "moe_router_padding_for_quantization",
}
"""Options that the installed release knows by another name."""

PLAIN = {
    "activation_func": "silu",
    "gated_linear_unit": True,
    "normalization": "RMSNorm",
    "params_dtype": "bf16",
    "hidden_dropout": 0.0,
    "attention_dropout": 0.0,
    "bias_dropout_fusion": False,
    "masked_softmax_fusion": False,
    "apply_rope_fusion": False,
    "perform_initialization": False,
}


def request(options: Options) -> dict[str, Any]:
    """The config as the engine is asked about it."""
    config = PLAIN | {RENAMED.get(k, k): v for k, v in options.items() if k not in NOT_CONFIG}
    config["pipeline_model_parallel_layout"] = options.get("pipeline_model_parallel_layout")
    layout = options.get("pipeline_model_parallel_layout")
    mesh = {name: options[name] for name in MESH if options.get(name) is not None}
    if layout and options["virtual_pipeline_model_parallel_size"] is None:
        chunks = layout.count("|") + 1
        pp = options["pipeline_model_parallel_size"]
        if chunks > pp and chunks % pp == 0:
            mesh["virtual_pipeline_model_parallel_size"] = chunks // pp
    world, pp = options["world_size"], options["pipeline_model_parallel_size"]
    stages = sorted({0, pp // 2, pp - 1})
    return {
        "world": world,
        "ranks": [min(stage * (world // pp), world - 1) for stage in stages],
        "mesh": mesh,
        "config": config,
        "model": {
            "kind": "gpt",
            "vocab_size": options["vocab_size"],
            "max_sequence_length": options["seq_length"],
            "tied": False,
            "position": "rope",
            "post_norms": False,
        },
        **{name: options[name] for name in ("seq_length", "micro_batch_size", "global_batch_size")},
    }


def engine_verdict(engine: EngineProcess, options: Options) -> str | None:
    """The engine's refusal in its own words; empty when the config starts; None when it cannot say here."""
    question = request(options)
    try:
        engine.ask("parameters", timeout=60, **question)
        engine.ask("valid", timeout=60, **question)
    except EngineError as error:
        if any(words in str(error) for words in NOT_HERE):
            return None
        return f"{error.kind}: {str(error)[:160]} [{error.where}]"
    return ""


def rules_verdict(options: Options, version: str) -> tuple[str, ...]:
    """Ids of the error rules that the config breaks, judged as of a version of Megatron Core."""
    view = View.of({**options, "installed_packages": ()}, framework="megatron-core", version=version)
    errors = (finding.rule for finding in examine(view).findings if finding.severity == "error")
    return tuple(name for name in errors if name not in LATER and rule(name).effect == "raises")


def judge(engine: EngineProcess, seeds: range) -> Iterator[Judgement]:
    """Both verdicts for every seed."""
    version = importlib.metadata.version("megatron-core")
    for seed in seeds:
        options = draw(seed)
        yield Judgement(seed, options, rules_verdict(options, version), engine_verdict(engine, options))


# Reporting.


def report(judgements: list[Judgement], seconds: float, command: str) -> str:
    """The dated report, in Markdown."""
    refused = [j for j in judgements if j.engine]
    apart = [j for j in judgements if not j.agree]
    fired = collections.Counter(name for j in judgements for name in j.rules)
    starts = sum(j.engine == "" for j in judgements)
    lines = [
        f"# Rules and Megatron Core {importlib.metadata.version('megatron-core')} on random configs",
        "",
        f"{datetime.date.today().isoformat()}; `{command}`; torch {importlib.metadata.version('torch')}, "
        f"Python {sys.version.split()[0]}; {seconds:.0f} s.",
        "",
        f"- {len(judgements)} configs: Megatron Core starts {starts} and refuses "
        f"{len(refused)}; for {sum(j.engine is None for j in judgements)} it needs a GPU to say.",
        f"- Disagreements: {len(apart)}.",
        f"- {len(fired)} different rules fired.",
        "",
        "| rule | configs it refuses |",
        "|---|---|",
        *(f"| {name} | {count} |" for name, count in fired.most_common()),
    ]
    if apart:
        lines += ["", "## Disagreements", ""]
        lines += [f"- seed {j.seed}: rules {list(j.rules)}; engine {j.engine or 'starts'}" for j in apart]
    return "\n".join(lines) + "\n"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--configs", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--report", type=Path, default=Path(__file__).parent / "reports")
    asked = parser.parse_args()
    start = time.perf_counter()
    with EngineProcess() as engine:
        judgements = list(judge(engine, range(asked.seed, asked.seed + asked.configs)))
    command = f"python benchmarks/differential.py --configs {asked.configs} --seed {asked.seed}"
    text = report(judgements, time.perf_counter() - start, command)
    asked.report.mkdir(parents=True, exist_ok=True)
    path = asked.report / f"{datetime.date.today().isoformat()}-differential.md"
    path.write_text(text)
    print(text)
    for apart in [j for j in judgements if not j.agree]:
        print(json.dumps({"seed": apart.seed, "rules": apart.rules, "engine": apart.engine, **apart.options}))
    return 0 if all(j.agree for j in judgements) else 1


if __name__ == "__main__":
    sys.exit(main())
