"""What was written, and what of the plan its framework has no word for.

Nothing is listed by hand: the written files are read again, and what is not in them is what was left out.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from meshwright.errors import QuestionError
from meshwright.frameworks import scripts
from meshwright.frameworks.plan import Plan
from meshwright.frameworks.precision import precision_of
from meshwright.frameworks.reading import Plain, Reading
from meshwright.frameworks.recipes import recipe_of_model
from meshwright.frameworks.spelling import layer_list_text, spelled, table

BY_SHAPE = frozenset({"megatron-lm", "slurm", "kubernetes", "slime", "primus", "megatron-deepspeed", "nemo"})
"""Frameworks that are told the model's shape; the others load the model by its name."""
MEANT = frozenset(
    {"task", "transformer_impl", "group_query_attention", "swiglu", "vocab_size", "should_pad_vocab"}
)
"""Options that are meant by others, or by what is trained: nothing is lost without them."""
DECISIVE = frozenset(
    {"tensor_model_parallel_size", "pipeline_model_parallel_size", "virtual_pipeline_model_parallel_size"}
    | {"context_parallel_size", "expert_model_parallel_size", "expert_tensor_parallel_size"}
    | {"sequence_parallel", "pipeline_model_parallel_layout", "num_layers_in_first_pipeline_stage"}
    | {"num_layers_in_last_pipeline_stage", "micro_batch_size", "use_megatron_fsdp", "use_torch_fsdp2"}
    | {"recompute_granularity", "recompute_method", "recompute_num_layers", "recompute_modules"}
    | {"use_distributed_optimizer", "optimizer_cpu_offload", "precision", "task"}
)
"""Options without which it is another layout, or takes other memory."""
BY_NAME = ("recipe.py",)
"""Files that load the model by its name all the same."""
IMPLIED: Mapping[str, frozenset[str]] = {
    "megatron-bridge": frozenset({"max_position_embeddings", "quick_geglu", "squared_relu"}),
    "torchtitan": frozenset(
        {"use_distributed_optimizer", "use_megatron_fsdp", "data_parallel_sharding_strategy", "ckpt_format"}
        | {"overlap_grad_reduce", "overlap_param_gather", "sequence_parallel"}
    ),
}
"""What a framework always does or says in other words: torchtitan shards all state (FSDP2) and overlaps its
exchange; Bridge takes positions from the sequence and names activations."""
DEFAULTS: Mapping[str, Plain] = {
    "optimizer": "adam", "cp_comm_type": "p2p", "ckpt_format": "torch_dist", "add_bias_linear": True,
    "yarn_correction_range_round_to_int": True,
}  # fmt: skip
"""What a framework does that is not told."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Left:
    """One value of the plan that a framework has no word for."""

    option: str
    value: Plain
    files: tuple[str, ...]

    @property
    def text(self) -> str:
        if self.value is True:
            return self.option
        value = (
            layer_list_text(self.value)
            if self.option == "moe_layer_freq" and isinstance(self.value, tuple)
            else spelled(self.value)
        )
        return f"{self.option}={value}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Written:
    """Files for a framework, what they do not say, and what a person should hear before running them."""

    framework: str
    files: Mapping[str, str]
    not_expressed: tuple[Left, ...] = ()
    warnings: tuple[str, ...] = field(default=())
    decisive: tuple[Left, ...] = ()
    """What none of the files says, and without which it is another layout or takes other memory."""

    def as_dict(self) -> dict[str, Any]:
        return {
            "framework": self.framework,
            "files": dict(self.files),
            "not_expressed": [
                {"option": left.option, "value": left.value, "files": list(left.files)}
                for left in self.not_expressed
            ],
            "warnings": list(self.warnings),
        }


def written(framework: str, title: str, plan: Plan, files: Mapping[str, str]) -> Written:
    """The files with a comment on what each leaves out, and the same as data."""
    said = {name: readings for name, text in files.items() if (readings := _read(name, text))}
    missing: dict[str, list[str]] = {}
    texts = dict(files)
    unset = _not_exported(plan, texts)
    by_name = BY_NAME if framework in BY_SHAPE else ()
    by_shape = framework in BY_SHAPE or _vanilla(framework, plan)
    wanted = {**plan.architecture, **plan.options}
    for file, reading in said.items():
        asked = wanted if by_shape and file not in by_name else plan.options
        left = [name for name, value in asked.items() if not _says(reading, name, value, framework)]
        if _precision_lost(plan, reading):
            left.append("precision")
        for name in left:
            missing.setdefault(name, []).append(file)
        sentences = [Left(option=n, value=_value(plan, wanted, n), files=()).text for n in left]
        more = [f"left out, for {title} has no word: {', '.join(sentences)}"] if sentences else []
        more += [f"export where it is started: {' '.join(unset)}"] if unset else []
        heading = scripts.comment(plan.heading)
        texts[file] = texts[file].replace(heading, heading + scripts.comment("\n".join(more)), 1)
    if plan.task in ("sft", "lora") and all(r.get("task") != plan.task for r in said.values()):
        missing["task"] = list(said)
    lefts = tuple(
        Left(option=name, value=_value(plan, wanted, name), files=tuple(names))
        for name, names in missing.items()
    )
    nowhere = tuple(left for left in lefts if left.option in DECISIVE and len(left.files) == len(said))
    return Written(framework=framework, files=texts, not_expressed=lefts, decisive=nowhere)


def _vanilla(framework: str, plan: Plan) -> bool:
    """Whether Megatron Bridge has no recipe of the model and is told its shape."""
    known = plan.recipe or (recipe_of_model(plan.model, plan.gpu) if framework == "megatron-bridge" else "")
    return framework == "megatron-bridge" and known is None


def _value(plan: Plan, wanted: Mapping[str, Plain], name: str) -> Plain:
    if name == "task":
        return plan.task
    return precision_of(plan.options) if name == "precision" else wanted[name]


def _read(name: str, text: str) -> Reading | None:
    """The one run that a written file describes; None for a file beside it."""
    from meshwright.frameworks.read import read_text

    if name.endswith(".json"):
        return None
    try:
        readings = read_text(text, name)
    except QuestionError:
        return None
    return readings[0] if readings else None


def _says(reading: Reading, name: str, value: Plain, framework: str) -> bool:
    """Whether a file says this value, in its own words or by its defaults."""
    idle = value is None or value is False or value in ("", ()) or DEFAULTS.get(name, ...) == value
    if idle or name in MEANT or name in table()["precision_options"]:
        return True
    if name in IMPLIED.get(framework, ()):
        return True
    if name.endswith("_dropout") and value == 0.0 and framework not in BY_SHAPE:
        return True  # as the model's own config says
    if name == "seq_length" and reading.get("dataset_seq_length") == value:
        return True
    found = reading.get(name)
    if found is None and isinstance(value, str) and scripts.OPEN.search(value):
        return any(unknown.option == name for unknown in reading.unknowns)
    if name == "virtual_pipeline_model_parallel_size":
        found = found or reading.get("num_virtual_stages_per_pipeline_rank")
        return found == value or value == 1 or reading.get("pipeline_model_parallel_layout") is not None
    if found is None and value == 1 and isinstance(value, int) and not isinstance(value, bool):
        return True  # a count: one of it
    if found is None and name == "sequence_parallel":
        return reading.get("tensor_model_parallel_size") in (None, 1)
    return _same(found, value)


def _same(found: Plain, value: Plain) -> bool:
    if isinstance(value, (tuple, list)):
        words = (found,) if isinstance(found, str) else found
        return isinstance(words, (tuple, list)) and list(words) == list(value)
    return found == value


def _precision_lost(plan: Plan, reading: Reading) -> bool:
    """Whether a number format other than bf16 is not in the file."""
    wanted = precision_of(plan.options)
    return wanted != "bf16" and precision_of({n: v.value for n, v in reading.options.items()}) != wanted


def _not_exported(plan: Plan, files: Mapping[str, str]) -> list[str]:
    """Variables of the plan that none of the files sets."""
    everything = "\n".join(files.values())
    return [f"{name}={value}" for name, value in plan.environment.items() if name not in everything]
