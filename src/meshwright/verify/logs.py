"""Reading training logs of Megatron-LM, Megatron Bridge and NeMo.

    log = read_log(text)        what the log says: degrees, iterations, memory, failures
    judge_log(log, expected)    whether the run is a success, and why not, in words (`log_judge`)

Unknown lines are skipped; nothing in a log can make reading fail or take long.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from typing import Any, Literal

Source = Literal["megatron-lm", "megatron-bridge", "nemo", "unknown"]
LONGEST_LINE = 4_000
"""Longer lines (dumped tensors) are cut: no figure stands so far to the right."""

MIB = 1024.0**2
GB = 1e9


@dataclass(frozen=True, slots=True, kw_only=True)
class Iteration:
    """One line of training progress; None where the log does not say.

    seconds  time of the step [s]
    tflops   model TFLOP/s a GPU
    skipped, nan  iterations so far that were skipped, or had a loss that is no number
    """

    number: int
    total: int | None = None
    loss: float | None = None
    seconds: float | None = None
    tflops: float | None = None
    grad_norm: float | None = None
    global_batch: int | None = None
    skipped: int = 0
    nan: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """Something that went wrong.

    kind   "oom", "nan", "nccl-timeout", "error" (an exception), "killed" (signal, scheduler), "crash"
    text   the sentence of the log, shortened
    line   its line number, from 1
    """

    kind: str
    text: str
    line: int
    rank: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RunLog:
    """What a training log says.

    degrees  by our names (tp, pp, vpp, cp, ep, etp, dp, ...), only those that the log states
    memory   by rank, most bytes that were allocated [bytes]
    options  further settings that the log prints, by Megatron's names
    timers   by name, the largest time over ranks that a timer line states [s]
    """

    source: Source = "unknown"
    degrees: dict[str, int] = field(default_factory=dict)
    world: int | None = None
    iterations: tuple[Iteration, ...] = ()
    train_iters: int | None = None
    memory: dict[int, float] = field(default_factory=dict)
    failures: tuple[Failure, ...] = ()
    options: dict[str, str] = field(default_factory=dict)
    timers: dict[str, tuple[float, float]] = field(default_factory=dict)
    exit_status: int | None = None


NAMES = {
    "tensor_model_parallel_size": "tp",
    "pipeline_model_parallel_size": "pp",
    "virtual_pipeline_model_parallel_size": "vpp",
    "context_parallel_size": "cp",
    "expert_model_parallel_size": "ep",
    "expert_tensor_parallel_size": "etp",
    "data_parallel_size": "dp",
    "micro_batch_size": "mbs",
    "global_batch_size": "gbs",
    "world_size": "world",
    "train_iters": "train_iters",
    "num_layers_per_virtual_pipeline_stage": "layers_per_chunk",
}
"""Megatron's names of the numbers that are read from argument dumps, and ours."""

WORLD_LINE = re.compile(r"using world size: (\d+), data-parallel size: (\d+)")
SIZE_PAIR = re.compile(r"(context|tensor-model|pipeline-model|expert-model)-parallel size: (\d+)")
PAIR_NAMES = {"context": "cp", "tensor-model": "tp", "pipeline-model": "pp", "expert-model": "ep"}
ARGUMENT = re.compile(r"^\s*(?:\S+:\s+)?([a-z][a-z0-9_]{2,60}) \.{3,} (\S+)\s*$")
YAML = re.compile(r"^\s*([a-z][a-z0-9_]{2,60}): (\S+)\s*$")
STARTED = re.compile(r"initialized (tensor|pipeline) model parallel with size (\d+)")
REGISTERED = re.compile(r"Starting with (\d+) processes")
GROUP = re.compile(
    r"Rank (\d+) has (data parallel|tensor model parallel|pipeline model parallel|context parallel|"
    r"expert model parallel)\s+group\s*:\s*\[([\d, ]+)\]"
)
GROUP_NAMES = {
    "data parallel": "dp",
    "tensor model parallel": "tp",
    "pipeline model parallel": "pp",
    "context parallel": "cp",
    "expert model parallel": "ep",
}
NUMBER = r"([-+]?(?:\d+\.?\d*(?:[eE][-+]?\d+)?|nan|inf)|NAN|NaN|INF)"
ITERATION = re.compile(r"\biteration\s+(\d+)\s*/\s*(\d+)")
NEMO_ITERATION = re.compile(r"Training epoch \d+, iteration (\d+)/(\d+)|global_step=(\d+)")
FIELDS: tuple[tuple[str, re.Pattern[str], float], ...] = (
    ("loss", re.compile(r"(?:lm loss|reduced_train_loss)\s*[:=]\s*" + NUMBER), 1.0),
    ("seconds", re.compile(r"elapsed time per iteration \(ms\):\s*" + NUMBER), 1e-3),
    ("seconds", re.compile(r"train_step_timing in s\s*[:=]\s*" + NUMBER), 1.0),
    ("tflops", re.compile(r"throughput per GPU \(TFLOP/s/GPU\):\s*" + NUMBER), 1.0),
    ("tflops", re.compile(r"TFLOPS_per_GPU\s*[:=]\s*" + NUMBER), 1.0),
    ("grad_norm", re.compile(r"grad[ _]norm\s*[:=]\s*" + NUMBER), 1.0),
    ("global_batch", re.compile(r"global[ _]batch[ _]size\s*[:=]\s*" + NUMBER), 1.0),
    ("skipped", re.compile(r"number of skipped iterations:\s*" + NUMBER), 1.0),
    ("nan", re.compile(r"number of nan iterations:\s*" + NUMBER), 1.0),
)
STEP_TIME = re.compile(r"Step Time : ([\d.]+)s GPU utilization: ([\d.]+)")
MEMORY = re.compile(r"\[Rank (\d+)\].*memory \((MB|GB)\).*?max[- ]allocated(?:-gigabytes)?: ([\d.]+)")
NEMO_MEMORY = re.compile(r"max_memory_allocated\s*[:=]\s*([\d.]+)")
TIMER = re.compile(r"^\s*([a-z][a-z0-9-]{2,50}) \.{3,}: \(([\d.]+), ([\d.]+)\)")
EXIT = re.compile(r"(?:exitcode|exit code|exit status)\s*:?\s*(-?\d+)", re.IGNORECASE)
RANK = re.compile(r"\[rank\s?(\d+)\]|\bRank (\d+)\b|\brank\s*:\s*(\d+)", re.IGNORECASE)
EXCEPTION = re.compile(r"([A-Za-z_][\w.]{0,80}Error)$")


def read_log(text: str | Iterable[str]) -> RunLog:
    """What a log says, whichever of the three frameworks wrote it."""
    reader = _Reader()
    lines = text.splitlines() if isinstance(text, str) else text
    for number, line in enumerate(lines, 1):
        reader.take(number, line[:LONGEST_LINE])
    return reader.finish()


class _Reader:
    """Collects what single lines say."""

    def __init__(self) -> None:
        self.numbers: dict[str, int] = {}
        self.options: dict[str, str] = {}
        self.iterations: dict[int, Iteration] = {}
        self.memory: dict[int, float] = {}
        self.failures: list[Failure] = []
        self.timers: dict[str, tuple[float, float]] = {}
        self.exit_status: int | None = None
        self.seen: dict[str, int] = {}
        self.step_time: tuple[float, float] | None = None

    def take(self, number: int, line: str) -> None:
        for look in (self._degrees, self._arguments, self._iteration, self._memory, self._timer):
            look(line)
        self._failure(number, line)

    def finish(self) -> RunLog:
        degrees = dict(self.numbers)
        layers = degrees.pop("layers_per_chunk", None)
        total = self.options.get("num_layers", "")
        if layers and total.isdigit() and "vpp" not in degrees:
            degrees["vpp"] = int(total) // (layers * degrees.get("pp", 1))
        world, train_iters = degrees.pop("world", None), degrees.pop("train_iters", None)
        ordered = [self.iterations[number] for number in sorted(self.iterations)]
        totals = [iteration.total for iteration in ordered if iteration.total]
        return RunLog(
            source=self._source(),
            degrees=degrees,
            world=world,
            iterations=tuple(ordered),
            train_iters=train_iters or (totals[-1] if totals else None),
            memory=self.memory,
            failures=tuple(self.failures),
            options=self.options,
            timers=self.timers,
            exit_status=self.exit_status,
        )

    def _source(self) -> Source:
        if self.seen.get("nemo"):
            return "nemo"
        if self.seen.get("bridge"):
            return "megatron-bridge"
        return "megatron-lm" if self.seen.get("megatron") else "unknown"

    def _degrees(self, line: str) -> None:
        if match := WORLD_LINE.search(line):
            self.seen["megatron"] = 1
            self.numbers["world"], self.numbers["dp"] = int(match[1]), int(match[2])
            for name, size in SIZE_PAIR.findall(line):
                self.numbers[PAIR_NAMES[name]] = int(size)
        if match := STARTED.search(line):
            self.numbers.setdefault({"tensor": "tp", "pipeline": "pp"}[match[1]], int(match[2]))
        if match := REGISTERED.search(line):
            self.seen["nemo"] = 1
            self.numbers["world"] = int(match[1])
        if match := GROUP.search(line):
            self.seen["nemo"] = 1
            self.numbers[GROUP_NAMES[match[2]]] = len(match[3].split(","))

    def _arguments(self, line: str) -> None:
        match = ARGUMENT.match(line)
        if match is None:
            match = YAML.match(line)
            if match is None or match[1] not in (*NAMES, *KEPT_OPTIONS):
                return
            self.seen["bridge"] = 1
        else:
            self.seen["megatron"] = 1
        name, value = match[1], match[2].strip("'\",")
        self.options.setdefault(name, value)
        if name in NAMES and value.isdigit() and int(value) < 10**9:
            self.numbers.setdefault(NAMES[name], int(value))

    def _iteration(self, line: str) -> None:
        if match := STEP_TIME.search(line):
            self.seen["bridge"] = 1
            self.step_time = float(match[1]), float(match[2])
            return
        megatron = ITERATION.search(line)
        match = megatron or NEMO_ITERATION.search(line)
        if match is None or ("loss" not in line and "elapsed time" not in line and "timing" not in line):
            return
        if megatron and "Training epoch" not in line:
            self.seen.setdefault("megatron", 1)
            found = Iteration(number=int(megatron[1]), total=int(megatron[2]))
        else:
            self.seen["nemo"] = 1
            found = nemo_iteration(line)
        for name, pattern, scale in FIELDS:
            if value := pattern.search(line):
                found = with_field(found, name, float(value[1]) * scale)
        if self.step_time:
            seconds, tflops = self.step_time
            found = replace(found, seconds=found.seconds or seconds, tflops=found.tflops or tflops)
            self.step_time = None
        self.iterations[found.number] = found

    def _memory(self, line: str) -> None:
        if match := MEMORY.search(line):
            scale = MIB if match[2] == "MB" else GB
            rank = int(match[1])
            self.memory[rank] = max(self.memory.get(rank, 0.0), float(match[3]) * scale)
        elif match := NEMO_MEMORY.search(line):
            value = float(match[1])
            self.memory[0] = max(self.memory.get(0, 0.0), value * GB if value < 1e6 else value)

    def _timer(self, line: str) -> None:
        if match := TIMER.match(line):
            self.timers[match[1]] = float(match[2]) / 1e3, float(match[3]) / 1e3

    def _failure(self, number: int, line: str) -> None:
        for kind, found in FAILURES:
            if text := found(line):
                rank = RANK.search(line)
                where = next((int(group) for group in rank.groups() if group), None) if rank else None
                failure = Failure(kind=kind, text=shorten(text), line=number, rank=where)
                if failure.text not in {seen.text for seen in self.failures if seen.rank == where}:
                    self.failures.append(failure)
                break
        if (match := EXIT.search(line)) and int(match[1]) != 0:
            self.exit_status = int(match[1])


KEPT_OPTIONS = (
    "num_layers",
    "sequence_parallel",
    "overlap_grad_reduce",
    "overlap_param_gather",
    "tp_comm_overlap",
    "overlap_p2p_comm",
    "use_distributed_optimizer",
    "recompute_granularity",
    "recompute_method",
    "recompute_modules",
    "moe_token_dispatcher_type",
    "cuda_graph_impl",
    "seq_length",
    "attention_backend",
)
"""Settings of a configuration dump in YAML form that are worth keeping."""


def nemo_iteration(line: str) -> Iteration:
    """NeMo counts steps from 0; ours are counted from 1 like Megatron's."""
    match = NEMO_ITERATION.search(line)
    if match is None:
        return Iteration(number=0)
    if match[1] is not None:
        return Iteration(number=int(match[1]) + 1, total=int(match[2]) + 1)
    return Iteration(number=int(match[3]) + 1)


def with_field(iteration: Iteration, name: str, value: float) -> Iteration:
    """The iteration with one more figure; counts are whole numbers."""
    figure: Any = value
    if name in ("skipped", "nan", "global_batch"):
        figure = int(value) if math.isfinite(value) else 0
    return replace(iteration, **{name: figure})


def shorten(text: str, length: int = 300) -> str:
    text = " ".join(text.split())
    return text if len(text) <= length else text[: length - 3] + "..."


def _holds(*words: str) -> Callable[[str], str]:
    return lambda line: line if any(word in line for word in words) else ""


def _exception(line: str) -> str:
    """Class and text of an exception; a launcher's report that a process failed is none."""
    before, colon, text = line.partition("Error: ")
    if not colon or "ChildFailed" in before[-20:] or "warn" in line.lower():
        return ""
    match = EXCEPTION.search(before[-80:] + "Error")
    return f"{match[1]}: {text}" if match else ""


FAILURES: tuple[tuple[str, Callable[[str], str]], ...] = (
    (
        "oom",
        _holds("CUDA out of memory", "OutOfMemoryError", "CUBLAS_STATUS_ALLOC_FAILED", "NCCL Error 2: out"),
    ),
    (
        "nccl-timeout",
        _holds("Watchdog caught collective operation timeout", "Heartbeat monitor timed out"),
    ),
    ("nan", _holds("found NaN in local grad", "Unexpected result nan", "Rerun: result nan", "loss is NaN")),
    (
        "killed",
        _holds(
            "CANCELLED AT",
            "SIGKILL",
            "Signal 9",
            "oom-kill",
            "oom_kill",
            "Signals.SIGTERM",
            "DUE TO TIME LIMIT",
            ": Killed",
            "Node failure on",
        ),
    ),
    ("crash", _holds("Segmentation fault", "SIGSEGV", "SIGABRT", "Bus error", "Fatal Python error")),
    ("error", _exception),
)
"""What each kind of failure looks like; the first that matches a line counts."""
