"""What is answered over HTTP: the JSON that `--json` prints, described for OpenAPI."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict


class Open(BaseModel):
    """More fields may be added."""

    model_config = ConfigDict(extra="allow")


class FindingAnswer(Open):
    rule: str
    severity: Literal["error", "warn", "advice"]
    message: str
    fix: str
    enforced_by: str
    line: int | None = None


class LayoutAnswer(Open):
    tp: int
    pp: int
    vpp: int
    cp: int
    ep: int
    etp: int
    dp: float
    edp: float
    mbs: int
    gbs: int
    num_microbatches: float
    sp: bool


class StageAnswer(Open):
    stage: int
    parameters: int
    weights_bytes: int
    gradients_bytes: int
    optimizer_bytes: int
    activations_bytes: int
    other_bytes: int
    total_bytes: int
    allocated_bytes: int


class MemoryAnswer(Open):
    verdict: Literal["fits", "tight", "does-not-fit"]
    usable_bytes: int
    peak_bytes: int
    low_bytes: int
    high_bytes: int
    peak_allocated_bytes: int
    per_stage: list[StageAnswer]


class TimeAnswer(Open):
    step_seconds: float
    low_seconds: float
    high_seconds: float
    tokens_per_second_per_gpu: float
    model_tflops_per_gpu: float
    mfu: float
    terms: dict[str, float]


class AssumptionAnswer(BaseModel):
    model_config = ConfigDict(extra="allow")

    option: str
    value: Any


class PictureAnswer(BaseModel):
    name: str
    title: str
    description: str
    svg: str


class EstimateAnswer(Open):
    """`meshwright estimate --json`."""

    valid: bool
    findings: list[FindingAnswer]
    layout: LayoutAnswer
    min_gpus: int
    guide_min_gpus: int
    memory: MemoryAnswer | None
    time: TimeAnswer | None
    model: dict[str, Any]
    cluster: dict[str, Any]
    job: dict[str, Any]
    execution: dict[str, Any]
    assumptions: list[AssumptionAnswer]
    binding: list[str]
    reasons: list[str]
    tied: bool
    pictures: list[PictureAnswer] | None = None


class PlansAnswer(Open):
    """`meshwright plan --json`, and `fit --json` with the number of GPUs."""

    plans: list[EstimateAnswer]
    ties: int
    searched: int
    scored: int
    valid: int
    fitting: int
    seconds: float
    refused: dict[str, int]
    min_gpus_fitting: int | None = None
    pictures: list[PictureAnswer] | None = None


class CheckAnswer(Open):
    """`meshwright check --json`."""

    verdict: Literal["ok", "warn", "invalid", "unknown"]
    sources: list[str]
    findings: list[FindingAnswer]
    unknown: list[str]


class CompareAnswer(Open):
    """`meshwright compare --json`."""

    left: CheckAnswer | dict[str, Any]
    right: CheckAnswer | dict[str, Any]
    differs: dict[str, dict[str, Any]]
    costs: dict[str, dict[str, Any]]


class SectionAnswer(Open):
    id: str
    title: str
    lines: list[str]
    guide_says: str
    holds: list[str]
    agrees: bool


class AdviseAnswer(Open):
    """`meshwright advise --json`."""

    subject: str
    asked: bool
    starts: str
    layout: dict[str, Any]
    min_gpus: int
    sections: list[SectionAnswer]


class LevelAnswer(Open):
    level: int
    name: str
    verdict: Literal["pass", "fail", "skipped"]
    seconds: float
    why: str


class VerificationAnswer(Open):
    """`meshwright verify --json`."""

    verdict: Literal["pass", "fail", "skipped"]
    seconds: float
    levels: list[LevelAnswer]


class VerifyAnswer(BaseModel):
    """How to prove a plan: the command, the plan's own JSON, and the job where this server runs it.

    job  ask GET /api/verify/{job} how it stands; None where the server was started without `--verify`
    """

    command: str
    plan: EstimateAnswer
    job: str | None


class JobAnswer(BaseModel):
    """How a verification stands."""

    job: str
    status: Literal["waiting", "running", "done", "failed"]
    answer: VerificationAnswer | None
    error: str | None


class RanksAnswer(Open):
    """`meshwright ranks --json`."""

    world_size: int
    groups: dict[str, list[list[int]]]
    ranks: list[dict[str, int]]


class ScalingAnswer(Open):
    """One row a number of GPUs, and the picture of all."""

    sizes: list[dict[str, Any]]
    pictures: list[PictureAnswer]


class TraceAnswer(Open):
    """Chrome's trace event format."""

    traceEvents: list[dict[str, Any]]  # noqa: N815 (the format's own name)


class WrittenAnswer(BaseModel):
    """The files that a framework is launched with: {name: text}."""

    target: str
    files: dict[str, str]


class ModelRow(Open):
    name: str
    hugging_face_id: str | None
    parameters: float | None
    active_parameters: float | None
    source: str


class GpuRow(Open):
    name: str
    usable_memory_bytes: float
    gpus_per_node: int
    nvlink_domain: int


class ErrorAnswer(BaseModel):
    """Why there is no answer, in words for people.

    kind  question: the question is wrong; answer: the answer is no; limit: too large or too long
    """

    error: str
    kind: Literal["question", "answer", "limit", "internal"]


class LimitsAnswer(BaseModel):
    """What this server is and allows."""

    version: str
    largest_body_bytes: int
    seconds_a_request: float
    waiting_requests: int
    targets: list[str]
