"""What may be asked over HTTP, with a bound on everything. Pydantic at the edge; the library inside."""

from __future__ import annotations

from typing import Annotated, Any, Literal, get_type_hints

from pydantic import BaseModel, ConfigDict, Field, create_model

from meshwright.job.spec import (
    OFFLOAD_MODULES,
    Execution,
    Framework,
    GradDtype,
    Optimizer,
    Precision,
    Recompute,
    Task,
)
from meshwright.service.given import LARGEST_TEXT

MOST_TOP = 60
"""Characters of an uploaded config.json or a pasted script."""

Degree = Annotated[int, Field(ge=1, le=65536)]
Degrees = Degree | Annotated[list[Degree], Field(min_length=1, max_length=16)]
Width = Annotated[float, Field(ge=320, le=2000, description="draw pictures in this width [px]")]


class Strict(BaseModel):
    """Names that are not known are an error: a slip of the pen must not be ignored."""

    model_config = ConfigDict(extra="forbid")


_HINTS = get_type_hints(Execution)
_SKIPPED = frozenset({"recompute", "offload_modules"})
_Offloaded = Annotated[list[Literal[OFFLOAD_MODULES]], Field(max_length=len(OFFLOAD_MODULES))]  # type: ignore[valid-type]
_FIELDS: dict[str, Any] = {name: (hint | None, None) for name, hint in _HINTS.items() if name not in _SKIPPED}
_FIELDS["offload_modules"] = (_Offloaded | None, None)
_FIELDS["imbalance"] = (float | None, Field(None, exclude=True))  # answers repeat expert_imbalance under it
ExecutionGiven: Any = create_model("ExecutionGiven", __base__=Strict, **_FIELDS)
"""Fields of `Execution` that are given; the others are what the stack uses on that GPU."""


class ModelGiven(Strict):
    """The model: a catalog name, or the text of a config.json."""

    model: str | None = Field(None, max_length=120, description="name in the catalog (GET /api/models)")
    config: str | None = Field(
        None, max_length=LARGEST_TEXT, description="text of a Hugging Face config.json"
    )
    config_name: str = Field("config.json", max_length=120)
    num_layers: int | None = Field(None, ge=1, le=10_000)
    mtp_num_layers: int | None = Field(None, ge=0, le=64)
    vocab_size: int | None = Field(None, ge=1, le=10_000_000)
    max_position: int | None = Field(None, ge=1, le=100_000_000)


class JobGiven(ModelGiven):
    """A training job on a model."""

    seq_length: int | None = Field(None, ge=1, le=100_000_000, description="tokens a sample")
    global_batch: int | None = Field(None, ge=1, le=10_000_000, description="samples a step")
    precision: Precision = "bf16"
    optimizer: Optimizer = "adam"
    grad_dtype: GradDtype = "fp32"
    task: Task = "pretrain"
    stack: str = Field("26.06", max_length=20)
    framework: Framework = "megatron-bridge"
    framework_version: str | None = Field(None, max_length=20)
    tp: Degrees | None = None
    pp: Degrees | None = None
    vpp: Degrees | None = None
    cp: Degrees | None = None
    ep: Degrees | None = None
    etp: Degrees | None = None
    mbs: Degrees | None = None
    sp: bool | None = None
    pipeline_layout: str | None = Field(None, max_length=4000)
    recompute: Recompute | None = None
    execution: ExecutionGiven | None = None
    gpus_per_node: int | None = Field(None, ge=1, le=100_000)
    nvlink_domain: int | None = Field(None, ge=1, le=1_000_000)
    network_gbps: float | None = Field(None, gt=0, le=1_000_000)
    gpu_memory_gb: float | None = Field(None, gt=0, le=10_000)


class ClusterGiven(JobGiven):
    """A training job on some GPUs."""

    gpus: str = Field(max_length=80, description="for example 256xH100", examples=["64xH100"])


class PlanQuestion(ClusterGiven):
    """Which layouts are best; `width` adds the ranking as a picture."""

    top: int = Field(5, ge=1, le=MOST_TOP)
    variants: bool = False
    width: Width | None = None


class EstimateQuestion(ClusterGiven):
    """Memory and time of one layout; `width` adds its pictures, `group` colours the rank grid."""

    width: Width | None = None
    group: Literal["tp", "cp", "dp", "dp-cp", "pp", "ep", "etp", "edp"] | None = None
    pictures: list[Annotated[str, Field(max_length=40)]] | None = Field(None, max_length=20)


class FitQuestion(JobGiven):
    """The fewest GPUs of a kind."""

    gpu: str = Field(max_length=60, examples=["H100"])
    max_gpus: int = Field(16384, ge=1, le=65536)
    top: int = Field(3, ge=1, le=MOST_TOP)


class ScalingQuestion(ClusterGiven):
    """The best layout on several numbers of GPUs around the one given."""

    width: Width = 760.0


class ReportQuestion(ClusterGiven):
    """The plan as one HTML file."""

    top: int = Field(10, ge=1, le=MOST_TOP)


class LayoutQuestion(ClusterGiven):
    """One layout."""


class WriteQuestion(ClusterGiven):
    """One layout in the language of a framework."""

    target: str = Field("megatron-lm", max_length=40)


class CheckQuestion(Strict):
    """A launch script or config to read; it is read, never run."""

    text: str = Field(max_length=LARGEST_TEXT)
    name: str = Field("script.sh", max_length=120, description="its suffix tells its kind")
    gpus: int | None = Field(None, ge=1, le=10_000_000)
    gpu: str | None = Field(None, max_length=60)
    framework: str | None = Field(None, max_length=40)


class RanksQuestion(Strict):
    """Who sits where."""

    world_size: int = Field(ge=1, le=65536)
    tp: Degree = 1
    pp: Degree = 1
    vpp: Degree = 1
    cp: Degree = 1
    ep: Degree = 1
    etp: Degree = 1
    order: str | None = Field(None, max_length=40)
    gpus_per_node: int | None = Field(None, ge=1, le=65536)
    nvlink_domain: int | None = Field(None, ge=1, le=65536)


class CompareQuestion(Strict):
    """Two launch scripts or configs to hold beside each other; they are read, never run."""

    left: str = Field(max_length=LARGEST_TEXT)
    right: str = Field(max_length=LARGEST_TEXT)
    left_name: str = Field("left.sh", max_length=120, description="its suffix tells its kind")
    right_name: str = Field("right.sh", max_length=120)


class AdviseQuestion(Strict):
    """What the parallelism guide says; everything may be left out."""

    model: str | None = Field(None, max_length=120, description="name in the catalog (GET /api/models)")
    config: str | None = Field(
        None, max_length=LARGEST_TEXT, description="text of a Hugging Face config.json"
    )
    config_name: str = Field("config.json", max_length=120)
    gpus: str | None = Field(None, max_length=80, description="a number, or a cluster such as 256xH100")
    params_b: float | None = Field(None, ge=1e-6, le=1_000_000, description="billions of parameters")
    active_b: float | None = Field(None, ge=1e-6, le=1_000_000, description="billions at work on a token")
    seq_length: int | None = Field(None, ge=1, le=100_000_000)
    network: Literal["nvlink", "infiniband", "ethernet"] | None = None
    tp: Degree | None = None
    pp: Degree | None = None
    vpp: Degree | None = None
    cp: Degree | None = None
    ep: Degree | None = None
    etp: Degree | None = None
    sp: bool | None = None
    topics: list[Annotated[str, Field(max_length=40)]] | None = Field(None, max_length=20)


class VerifyQuestion(ClusterGiven):
    """One layout to prove on Megatron Core itself."""

    levels: Annotated[list[Literal[0, 1, 2]], Field(min_length=1, max_length=3)] = [0, 1, 2]
