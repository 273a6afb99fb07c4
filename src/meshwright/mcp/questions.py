"""What agents may ask: one model a tool. Names are the field's short ones; Megatron's are taken as well."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import AliasChoices, BaseModel, ConfigDict, Field, ValidationError

from meshwright.errors import QuestionError, did_you_mean
from meshwright.job.spec import Dispatcher, Framework, Granularity, Optimizer, Precision, Task
from meshwright.service.given import LARGEST_TEXT

MOST_RANKS = 65_536

LONG = {
    "tp": "tensor_model_parallel_size",
    "pp": "pipeline_model_parallel_size",
    "vpp": "virtual_pipeline_model_parallel_size",
    "cp": "context_parallel_size",
    "ep": "expert_model_parallel_size",
    "etp": "expert_tensor_parallel_size",
    "mbs": "micro_batch_size",
    "global_batch": "global_batch_size",
    "sp": "sequence_parallel",
}
"""Megatron's spelling of the short names."""


def _named(name: str, words: str = "", *, shown: str = "", **bounds: Any) -> Any:
    """A field that is also taken under Megatron's spelling, which its description gives."""
    choices = AliasChoices(*dict.fromkeys((shown or name, name, LONG[name])))
    description = f"{LONG[name]}{'; ' if words else ''}{words}"
    return Field(None, validation_alias=choices, description=description, **bounds)


def _degree(name: str, words: str = "") -> Any:
    return _named(name, words, ge=1, le=MOST_RANKS)


class Asked(BaseModel):
    """Names that are not known are an error: a slip of the pen must not be ignored."""

    model_config = ConfigDict(extra="forbid", populate_by_name=True)


class Degrees(Asked):
    """The degrees of a layout."""

    tp: int | None = _degree("tp")
    pp: int | None = _degree("pp")
    vpp: int | None = _degree("vpp", "model chunks a pipeline rank")
    cp: int | None = _degree("cp")
    ep: int | None = _degree("ep")
    etp: int | None = _degree("etp")


class ModelGiven(Asked):
    """The model: a catalog name, or the text of a config.json."""

    model: str | None = Field(
        None,
        max_length=120,
        description="name or Hugging Face id in the catalog (resource meshwright://models), e.g. deepseek-v3",
    )
    config: str | None = Field(
        None,
        max_length=LARGEST_TEXT,
        description="text of a Hugging Face config.json, in place of model; paths are not read",
    )


class JobGiven(ModelGiven, Degrees):
    """A training job on a model."""

    mbs: int | None = _degree("mbs")
    global_batch: int | None = _named(
        "global_batch", "samples a step; default: of the model's recipe", shown="gbs", ge=1, le=10_000_000
    )
    sp: bool | None = _named("sp", "default: on exactly when tp > 1")
    seq_length: int | None = Field(
        None, ge=1, le=100_000_000, description="tokens a sample; default: of the model's recipe"
    )
    precision: Precision = "bf16"
    optimizer: Optimizer = "adam"
    task: Task = "pretrain"
    framework: Framework = Field("megatron-bridge", description="whose rules and defaults apply")
    recompute: Granularity | None = Field(None, description="recompute_granularity; default: searched")
    recompute_modules: list[Annotated[str, Field(max_length=40)]] | None = Field(
        None, max_length=12, description="for recompute=selective: core_attn, moe_act, mlp, ..."
    )
    fsdp: bool | None = Field(None, description="Megatron FSDP in place of the distributed optimizer")
    dispatcher: Dispatcher | None = Field(None, description="moe_token_dispatcher_type")
    nvlink_domain: int | None = Field(None, ge=1, le=1_000_000, description="GPUs joined by NVLink")
    gpus_per_node: int | None = Field(None, ge=1, le=100_000)
    network_gbps: float | None = Field(None, gt=0, le=1_000_000, description="Gbit/s a GPU between nodes")


class ClusterGiven(JobGiven):
    """A training job on some GPUs."""

    gpus: str = Field(max_length=80, description="how many of which kind, e.g. 256xH100, 64xGB200")


class PlanQuestion(ClusterGiven):
    """The best layouts of a model on a cluster, fastest first, with memory, step time, and why.

    Degrees that are given are held; all others are searched. Layouts within the uncertainty are tied.
    """

    top: int = Field(3, ge=1, le=6, description="how many layouts")


class EstimateQuestion(ClusterGiven):
    """One layout: whether it can start, the fewest GPUs it needs, memory a stage, and step time by term.

    Degrees not given are 1. A layout that cannot start has valid=false and findings that say why,
    with the nearest values that work.
    """


class FitQuestion(JobGiven):
    """The fewest GPUs of a kind that train a model, and how."""

    gpu: str = Field(max_length=60, description="kind of GPU, e.g. H100 (resource meshwright://gpus)")
    max_gpus: int = Field(16384, ge=1, le=MOST_RANKS)


class WriteQuestion(ClusterGiven):
    """A layout as the launch script or config of a framework: the one given, or the best."""

    to: str = Field("megatron-bridge", max_length=40, description="framework, e.g. megatron-lm, nemo, slurm")


class CheckQuestion(Asked):
    """What is wrong with a launch script, a config file or a command, given as text. It is never run.

    Nothing but the text is read: what it sources or includes stays unknown.
    """

    text: str = Field(max_length=LARGEST_TEXT, description="the whole text of the script, config or command")
    name: str = Field(
        "script.sh", max_length=120, description="file name; its suffix tells the kind (.sh .yaml .toml .py)"
    )
    gpus: str | None = Field(
        None, max_length=80, description="number of GPUs or cluster, where the text does not settle it"
    )
    framework: str | None = Field(None, max_length=40)
    environment: dict[str, str] | None = Field(None, max_length=100, description="environment variables")


class RanksQuestion(Degrees):
    """Who sits where: the communication groups of a layout, and which leave a node or NVLink domain."""

    world_size: int = Field(ge=1, le=MOST_RANKS, description="number of ranks (GPUs)")
    rank: int | None = Field(None, ge=0, le=MOST_RANKS, description="show this rank and its groups")
    group: str | None = Field(
        None, max_length=20, description="list the groups of one kind: tp, cp, dp, dp-cp, pp, ep, etp, edp"
    )
    order: str | None = Field(None, max_length=40, description="default tp-cp-ep-dp-pp")
    gpus_per_node: int | None = Field(None, ge=1, le=MOST_RANKS)
    nvlink_domain: int | None = Field(None, ge=1, le=MOST_RANKS)


class AdviseQuestion(ModelGiven, Degrees):
    """The parallelism guide's answer and where it does not hold; everything may be left out.

    With degrees: whether they can start, the fewest GPUs (and the wrong product), both DP formulas,
    NVLink, SP, CP divisibility, sequence length, Slurm nodes.
    """

    params_b: float | None = Field(None, gt=0, le=1e6, description="billions of parameters, without a model")
    active_b: float | None = Field(None, gt=0, le=1e6, description="billions of active parameters (MoE)")
    gpus: str | None = Field(None, max_length=80, description="number of GPUs, or cluster")
    sp: bool | None = _named("sp")
    seq_length: int | None = Field(None, ge=1, le=10_000_000_000, description="tokens a sample")
    network: Literal["nvlink", "infiniband", "ethernet"] | None = None
    topics: list[Annotated[str, Field(max_length=40)]] | None = Field(
        None, max_length=15, description="sections wanted, e.g. memory, cautions, verification, corrections"
    )


class ExplainQuestion(Asked):
    """The page of one rule: what must hold, why, an example, the fix, the source; or rules by a word."""

    rule: str | None = Field(None, max_length=120, description="id of a rule, as findings show it")
    search: str | None = Field(None, max_length=80, description="list the rules that mention this")


QUESTIONS: Mapping[str, type[Asked]] = {
    "plan": PlanQuestion,
    "fit": FitQuestion,
    "estimate": EstimateQuestion,
    "check": CheckQuestion,
    "ranks": RanksQuestion,
    "advise": AdviseQuestion,
    "write": WriteQuestion,
    "explain": ExplainQuestion,
}


def read_question(tool: str, given: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments of a tool, checked; QuestionError in words that say what to change."""
    kind = QUESTIONS.get(tool)
    if kind is None:
        raise QuestionError(f"there is no tool {tool[:60]!r}; tools are {', '.join(QUESTIONS)}")
    try:
        return kind.model_validate(dict(given)).model_dump(mode="json", exclude_none=True)
    except ValidationError as error:
        words = [_slip(kind, dict(row)) for row in error.errors()[:5]]
        raise QuestionError("; ".join(dict.fromkeys(words))) from None


def _slip(kind: type[Asked], row: Mapping[str, Any]) -> str:
    """One thing that is wrong with the arguments."""
    name = ".".join(map(str, row["loc"]))[:80]
    if row["type"] == "extra_forbidden":
        known = list(kind.model_json_schema()["properties"])
        hint = did_you_mean(name, known) or "."
        return f"unknown argument {name!r}{hint} Arguments are {', '.join(known)}"
    if row["type"] == "missing":
        return f"{name} is missing"
    return f"{name}: {row['msg']}, not {str(row.get('input'))[:60]!r}"
