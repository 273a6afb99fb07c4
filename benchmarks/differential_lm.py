"""Random command lines, judged by the rules and by Megatron-LM's own arguments.py.

    python benchmarks/differential_lm.py --fetch 0.17.1        once: the wheel that carries megatron/training
    python benchmarks/differential_lm.py [--configs 1000] [--seed 0] [--version 0.17.1]

Megatron-LM's verdict is that of parse_args, validate_args and the TransformerConfig made from the arguments.
What it refuses some rule must refuse; what it accepts must break no rule of those places (rules of groups,
model build and schedule come later).
"""

from __future__ import annotations

import argparse
import collections
import datetime
import json
import os
import random
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

from differential import Options, draw_degrees, draw_layout, draw_model, draw_split, mostly
from meshwright.layout.rules import View, examine, rule
from meshwright.verify.process import child_environment

JUDGE = Path(__file__).with_name("megatron_lm_judge.py")
CACHE = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "meshwright" / "megatron-lm"
VERSION = "0.17.1"
PLACES = ("arguments.py", "transformer_config.py", "model_parallel_config.py", "layer_layout.py")
"""A rule whose source names one of these is raised by the time the config exists."""

LATER = {
    "moe-tp-needs-sp",  # named there for its warning; raised at the first forward pass
    "pp-divides-layers",  # arguments.py asks for it only without interleaving; the model build always
}


@dataclass(frozen=True)
class Judgement:
    """One command line: the rules it breaks by their own word, and Megatron-LM's refusal (or nothing)."""

    seed: int
    words: tuple[str, ...]
    rules: tuple[str, ...]
    refusal: str

    @property
    def agree(self) -> bool:
        early = [name for name in set(self.rules) - LATER if any(p in rule(name).source for p in PLACES)]
        return bool(self.rules) if self.refusal else not early


# Drawing.


def draw(seed: int, version: str) -> tuple[Options, dict[str, str]]:
    """One random config in Megatron's names, and the environment."""
    dice = random.Random(seed)
    options = draw_model(dice)
    options |= draw_degrees(dice, options)
    options.pop("pipeline_dtype")
    options |= draw_split(dice, options)
    options.pop("batch_p2p_comm")
    options["overlap_p2p_comm"] = dice.random() < 0.8
    chunks = options.pop("virtual_pipeline_model_parallel_size")
    if chunks and not options.get("pipeline_model_parallel_layout"):
        options |= draw_chunks(dice, options, chunks)
    known = [feature for feature, since in FEATURES if since <= parts(version)]
    for feature in dice.sample(known, dice.choice((0, 1, 1, 2))):
        options |= feature(dice, options)
    options |= draw_batch(dice, options)
    env = mostly(
        dice, {"CUDA_DEVICE_MAX_CONNECTIONS": "1"}, dice.choice(({}, {"CUDA_DEVICE_MAX_CONNECTIONS": "32"}))
    )
    return options, env


def parts(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split("."))


def draw_chunks(dice: random.Random, options: Options, chunks: int) -> Options:
    stage = options["num_layers"] // options["pipeline_model_parallel_size"]
    if dice.random() < 0.5 and stage >= chunks:
        return {"num_layers_per_virtual_pipeline_stage": mostly(dice, stage // chunks, dice.choice((2, 3)))}
    return {"num_virtual_stages_per_pipeline_rank": chunks}


def draw_batch(dice: random.Random, options: Options) -> Options:
    tp, cp = options["tensor_model_parallel_size"], options["context_parallel_size"]
    grid = tp * cp * options["pipeline_model_parallel_size"]
    world = grid * dice.choice((1, 2, 4))
    length = 2 * cp * tp * dice.choice((8, 16)) + mostly(dice, 0, 1)
    micro = dice.choice((1, 2))
    return {
        "world_size": mostly(dice, world, world + 1),
        "micro_batch_size": micro,
        "global_batch_size": micro * (world // grid) * dice.choice((4, 8)),
        "seq_length": length,
        "max_position_embeddings": mostly(dice, length, length - 1),
    }


def recompute(dice: random.Random, options: Options) -> Options:
    return {
        "recompute_granularity": dice.choice(("full", "full", "selective")),
        "recompute_method": dice.choice((None, "uniform", "block")),
        "recompute_num_layers": dice.choice((None, 1, 2)),
    }


def selective(dice: random.Random, options: Options) -> Options:
    modules = ("core_attn", "mlp", "moe", "moe_act", "layernorm", "mla_up_proj", "shared_experts")
    return {
        "recompute_granularity": "selective",
        "recompute_modules": dice.sample(modules, dice.choice((1, 2))),
    }


def saved(dice: random.Random, options: Options) -> Options:
    return {"distribute_saved_activations": True} | recompute(dice, options)


def gathers(dice: random.Random, options: Options) -> Options:
    return {
        "use_distributed_optimizer": dice.random() < 0.6,
        "overlap_grad_reduce": dice.random() < 0.6,
        "overlap_param_gather": dice.random() < 0.8,
        "overlap_param_gather_with_optimizer_step": dice.random() < 0.2,
        "ckpt_format": dice.choice(("torch", "torch_dist")),
    }


def megatron_fsdp(dice: random.Random, options: Options) -> Options:
    return {
        "use_megatron_fsdp": True,
        "ckpt_format": mostly(dice, "fsdp_dtensor", "torch_dist", 0.8),
        "data_parallel_sharding_strategy": dice.choice(("no_shard", "optim_grads_params")),
        "init_model_with_meta_device": dice.random() < 0.3,
        "nccl_ub": dice.random() < 0.2,
        "fsdp_manual_registration": dice.random() < 0.2,
    }


def torch_fsdp(dice: random.Random, options: Options) -> Options:
    return {
        "use_torch_fsdp2": True,
        "gradient_accumulation_fusion": dice.random() < 0.2,
        "ckpt_format": dice.choice(("torch_dist", "torch_dcp", "torch_dist")),
        "use_distributed_optimizer": dice.random() < 0.2,
    }


def optimizer(dice: random.Random, options: Options) -> Options:
    return {
        "use_precision_aware_optimizer": dice.random() < 0.6,
        "use_distributed_optimizer": dice.random() < 0.7,
        "optimizer_cpu_offload": dice.random() < 0.4,
    }


def fp8(dice: random.Random, options: Options) -> Options:
    return {
        "fp8": "hybrid",
        "fp8_recipe": dice.choice(("delayed", "tensorwise", "mxfp8")),
        "fp8_param": dice.random() < 0.4,
        "use_distributed_optimizer": dice.random() < 0.5,
        "first_last_layers_bf16": dice.random() < 0.3,
    }


def tp_overlap(dice: random.Random, options: Options) -> Options:
    return {"tp_comm_overlap": True}


def expert_overlap(dice: random.Random, options: Options) -> Options:
    return {
        "overlap_moe_expert_parallel_comm": True,
        "moe_token_dispatcher_type": mostly(dice, "alltoall", "allgather", 0.8),
        "delay_wgrad_compute": dice.random() < 0.3,
        "overlap_grad_reduce": dice.random() < 0.5,
    }


def capacity(dice: random.Random, options: Options) -> Options:
    return {
        "moe_expert_capacity_factor": dice.choice((None, 1.0)),
        "moe_pad_expert_input_to_capacity": dice.random() < 0.6,
        "moe_router_load_balancing_type": dice.choice(("aux_loss", "sinkhorn", "none")),
    }


def router(dice: random.Random, options: Options) -> Options:
    return {
        "moe_router_enable_expert_bias": dice.random() < 0.5,
        "moe_router_score_function": dice.choice(("softmax", "sigmoid")),
        "moe_router_num_groups": dice.choice((None, 2, 3)),
        "moe_router_group_topk": dice.choice((None, 1, 4)),
    }


def graphs(dice: random.Random, options: Options) -> Options:
    modules = ("attn", "mlp", "moe", "moe_router", "moe_preprocess")
    return {
        "cuda_graph_impl": "transformer_engine",
        "cuda_graph_modules": dice.sample(modules, dice.choice((1, 2))),
    }


def hierarchy(dice: random.Random, options: Options) -> Options:
    return {
        "cp_comm_type": dice.choice(("a2a+p2p", "p2p")),
        "hierarchical_context_parallel_sizes": dice.choice((None, [2, 2], [1, 2])),
    }


def positions(dice: random.Random, options: Options) -> Options:
    return {"position_embedding_type": dice.choice(("learned_absolute", "none", "rope"))}


def two_spellings(dice: random.Random, options: Options) -> Options:
    return {
        "num_virtual_stages_per_pipeline_rank": 2,
        "pipeline_model_parallel_layout": draw_layout(dice, options, 2),
    }


def muon(dice: random.Random, options: Options) -> Options:
    return {"optimizer": "muon", "ckpt_format": "torch_dist"}


def biases(dice: random.Random, options: Options) -> Options:
    return {"add_bias_linear": True}


def two_formats(dice: random.Random, options: Options) -> Options:
    return {"fp16": True, "bf16": dice.random() < 0.5}


def weight_shards(dice: random.Random, options: Options) -> Options:
    tp = options["tensor_model_parallel_size"]
    return {"tensor_parallel_num_weight_shards": dice.choice((tp, 2 * tp, tp + 1))}


Feature = Callable[[random.Random, Options], Options]
FEATURES: tuple[tuple[Feature, tuple[int, ...]], ...] = (
    (recompute, (0,)),
    (selective, (0,)),
    (saved, (0,)),
    (gathers, (0,)),
    (megatron_fsdp, (0,)),
    (torch_fsdp, (0,)),
    (optimizer, (0,)),
    (fp8, (0,)),
    (tp_overlap, (0,)),
    (expert_overlap, (0,)),
    (capacity, (0,)),
    (router, (0,)),
    (graphs, (0,)),
    (hierarchy, (0,)),
    (positions, (0,)),
    (two_spellings, (0,)),
    (muon, (0,)),
    (biases, (0,)),
    (two_formats, (0,)),
    (weight_shards, (0, 19)),
)
"""Features, and the release that brought each."""


# Asking.

PLAIN = [
    "--swiglu",
    "--normalization",
    "RMSNorm",
    "--untie-embeddings-and-output-weights",
    "--lr",
    "1e-4",
    "--train-iters",
    "10",
    "--tokenizer-type",
    "NullTokenizer",
    "--mock-data",
    "--no-rope-fusion",
]
OTHERWISE = {
    "num_moe_experts": "num-experts",
    "num_layers_in_first_pipeline_stage": "decoder-first-pipeline-num-layers",
    "num_layers_in_last_pipeline_stage": "decoder-last-pipeline-num-layers",
    "nccl_ub": "use-nccl-ub",
    "fp8": "fp8-format",
    "fp8_param": "fp8-param-gather",
}
"""Options whose flag is not their name."""


def words(options: Options, version: str) -> list[str]:
    """The command line of a config."""
    said = dict(options)
    said.pop("world_size")
    line = [*PLAIN, "--group-query-attention"]
    if not said.pop("add_bias_linear"):
        line.append("--disable-bias-linear")
    if not said.pop("overlap_p2p_comm"):
        line.append("--no-overlap-p2p-communication")
    if said.pop("gradient_accumulation_fusion", True) is False:
        line.append("--no-gradient-accumulation-fusion")
    if "cuda_graph_modules" in said and parts(version) < (0, 18):
        said["cuda_graph_scope"] = said.pop("cuda_graph_modules")
    for name, value in said.items():
        flag = "--" + OTHERWISE.get(name, name.replace("_", "-"))
        if value is None or value is False:
            continue
        if value is True:
            line.append(flag)
        elif isinstance(value, list):
            line += [flag, *map(str, value)]
        else:
            line += [flag, str(value)]
    return line


def rules_verdict(options: Options, env: dict[str, str], version: str) -> tuple[str, ...]:
    """Ids of the error rules that the command line breaks."""
    machine = {
        "compute_capability": "9.0",
        "te_version": "2.11.0",
        "torch_version": "2.13",
        "position_embedding_type": "rope",
    }
    known = {**machine, **{k: v for k, v in options.items() if v is not None}, "swiglu": True}
    view = View.of(known, framework="megatron-lm", version=version, env=env)
    return tuple(f.rule for f in examine(view).findings if f.severity == "error")


def judge(seeds: Sequence[int], version: str = VERSION) -> list[Judgement]:
    """Both verdicts for every seed; the wheel must have been fetched."""
    drawn = [draw(seed, version) for seed in seeds]
    position = {"position_embedding_type": "rope"}
    lines = [words(position | options, version) for options, _ in drawn]
    questions = [
        {"world": options["world_size"], "env": env, "words": line}
        for (options, env), line in zip(drawn, lines, strict=True)
    ]
    refusals = ask(questions, version)
    return [
        Judgement(seed, tuple(line), rules_verdict(options, env, version), refusal)
        for seed, line, (options, env), refusal in zip(seeds, lines, drawn, refusals, strict=True)
    ]


def ask(questions: list[dict[str, Any]], version: str) -> list[str]:
    """Megatron-LM's refusals, empty where it accepts."""
    environment = child_environment()
    environment["PYTHONPATH"] = os.pathsep.join([str(CACHE / version), environment["PYTHONPATH"]])
    done = subprocess.run(
        [sys.executable, "-W", "ignore", str(JUDGE)],
        input=json.dumps(questions),
        capture_output=True,
        text=True,
        timeout=1800,
        env=environment,
    )
    if done.returncode:
        raise RuntimeError(done.stderr[-2000:])
    replies: list[str] = json.loads(done.stdout)
    return replies


def fetch(version: str) -> Path:
    """Download and unpack the wheel whose megatron/training is asked; its path."""
    place = CACHE / version
    if (place / "megatron" / "training" / "arguments.py").exists():
        return place
    with tempfile.TemporaryDirectory() as folder:
        wanted = [f"megatron-core=={version}", "--python-version", "3.12", "--only-binary=:all:", "--no-deps"]
        subprocess.run([sys.executable, "-m", "pip", "download", "-q", *wanted, "-d", folder], check=True)
        (wheel,) = Path(folder).glob("*.whl")
        place.mkdir(parents=True, exist_ok=True)
        zipfile.ZipFile(wheel).extractall(place)
    return place


# Reporting.


def report(judgements: list[Judgement], version: str, command: str) -> str:
    """The dated report, in Markdown."""
    refused = sum(bool(j.refusal) for j in judgements)
    apart = [j for j in judgements if not j.agree]
    fired = collections.Counter(name for j in judgements for name in j.rules)
    lines = [
        f"# Rules and Megatron-LM's arguments.py ({version}) on random command lines",
        "",
        f"{datetime.date.today().isoformat()}; `{command}`; Python {sys.version.split()[0]}.",
        "",
        f"- {len(judgements)} command lines; Megatron-LM refuses {refused} of them.",
        f"- Disagreements: {len(apart)}.",
        f"- {len(fired)} different rules fired.",
        "",
        "| rule | command lines |",
        "|---|---|",
        *(f"| {name} | {count} |" for name, count in fired.most_common()),
    ]
    if apart:
        lines += ["", "## Disagreements", ""]
        lines += [
            f"- seed {j.seed}: rules {list(j.rules)}; Megatron-LM {j.refusal or 'accepts'}" for j in apart
        ]
    return "\n".join(lines) + "\n"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--fetch", metavar="VERSION")
    parser.add_argument("--configs", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--version", default=VERSION)
    parser.add_argument("--report", type=Path, default=Path(__file__).parent / "reports")
    asked = parser.parse_args()
    if asked.fetch:
        print(fetch(asked.fetch))
        return 0
    judgements = judge(range(asked.seed, asked.seed + asked.configs), asked.version)
    drawn = f"--configs {asked.configs} --seed {asked.seed} --version {asked.version}"
    text = report(judgements, asked.version, f"python benchmarks/differential_lm.py {drawn}")
    asked.report.mkdir(parents=True, exist_ok=True)
    name = f"{datetime.date.today().isoformat()}-differential-lm-{asked.version}.md"
    (asked.report / name).write_text(text)
    print(text)
    return 0 if all(j.agree for j in judgements) else 1


if __name__ == "__main__":
    sys.exit(main())
