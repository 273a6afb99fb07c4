"""Training logs as Megatron-LM, Megatron Bridge and NeMo write them, for runs of every fate.

`log(framework, run)` is the text; a `Run` says what happens to it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

FRAMEWORKS = ("megatron-lm", "megatron-bridge", "nemo")
STAMP = "2025-12-01 09:{minute:02d}:{second:02d}"


@dataclass(frozen=True, kw_only=True)
class Run:
    """One run.

    logged   iterations that were logged, of `train_iters`
    nan_from the iteration from which the loss is no number
    slow     {iteration: times the usual step}
    ends     lines at the end of the log, as the run died
    refused  lines instead of any iteration
    """

    tp: int = 4
    pp: int = 4
    vpp: int = 1
    cp: int = 1
    ep: int = 1
    world: int = 64
    mbs: int = 1
    gbs: int = 128
    train_iters: int = 10
    logged: int = 10
    nan_from: int | None = None
    skipped: int = 0
    slow: dict[int, float] = field(default_factory=dict)
    ends: tuple[str, ...] = ()
    refused: tuple[str, ...] = ()
    step: float = 5.0
    loss: float = 11.9
    options: dict[str, str] = field(default_factory=dict)

    @property
    def dp(self) -> int:
        return self.world // (self.tp * self.pp * self.cp)

    def steps(self) -> Iterator[tuple[int, float, str]]:
        """(iteration, seconds, loss as written)."""
        for number in range(1, self.logged + 1):
            bad = self.nan_from is not None and number >= self.nan_from
            usual = self.step * (3.0 if number == 1 else 1.0 + 0.004 * (number * 7 % 5))
            text = "nan" if bad else f"{self.loss - 0.21 * (number - 1) ** 0.7:.6f}"
            yield number, usual * self.slow.get(number, 1.0), text


def log(framework: str, run: Run) -> str:
    """The log of a run."""
    written = {"megatron-lm": megatron_lm, "megatron-bridge": bridge, "nemo": nemo}[framework](run)
    return "\n".join(written) + "\n"


def world_line(run: Run) -> str:
    return (
        f"using world size: {run.world}, data-parallel size: {run.dp}, context-parallel size: {run.cp}, "
        f"hierarchical context-parallel sizes: None, tensor-model-parallel size: {run.tp}, "
        f"pipeline-model-parallel size: {run.pp}"
    )


def megatron_lm(run: Run) -> Iterator[str]:
    arguments: dict[str, object] = {
        "adam_beta1": 0.9,
        "context_parallel_size": run.cp,
        "data_parallel_size": run.dp,
        "expert_model_parallel_size": run.ep,
        "global_batch_size": run.gbs,
        "micro_batch_size": run.mbs,
        "num_layers": 80,
        "pipeline_model_parallel_size": run.pp,
        "tensor_model_parallel_size": run.tp,
        "train_iters": run.train_iters,
        "virtual_pipeline_model_parallel_size": run.vpp if run.vpp > 1 else None,
        "world_size": run.world,
        **run.options,
    }
    yield world_line(run)
    yield "Number of virtual stages per pipeline stage: " + str(run.vpp if run.vpp > 1 else None)
    yield "using torch.bfloat16 for parameters ..."
    yield "------------------------ arguments ------------------------"
    for name, value in sorted(arguments.items()):
        yield f"  {name} {'.' * (48 - len(name))} {value}"
    yield "-------------------- end of arguments ---------------------"
    yield f"> initialized tensor model parallel with size {run.tp}"
    yield f"> initialized pipeline model parallel with size {run.pp}"
    if run.refused:
        yield from run.refused
        return
    yield " > number of parameters on (tensor, pipeline) model parallel rank (0, 0): 1135771648"
    yield "training ..."
    yield from iterations(run)
    yield from run.ends


def iterations(run: Run) -> Iterator[str]:
    """Megatron's training log, which Bridge shares."""
    at = 0.0
    for number, seconds, loss in run.steps():
        at += seconds
        stamp = STAMP.format(minute=int(at // 60) % 60, second=int(at % 60))
        shown = "nan" if loss == "nan" else f"{float(loss):.6E}"
        loss_part = "" if number <= run.skipped else f" lm loss: {shown} |"
        yield (
            f" [{stamp}.104213] iteration {number:8d}/{run.train_iters:8d} | consumed samples: "
            f"{number * run.gbs:12d} | elapsed time per iteration (ms): {seconds * 1e3:.1f} | "
            f"throughput per GPU (TFLOP/s/GPU): {1900 / seconds:.1f} | learning rate: 3.000000E-06 | "
            f"global batch size: {run.gbs:5d} |{loss_part} "
            f"loss scale: 1.0 | grad norm: {'nan' if loss == 'nan' else '1.913'} | number of "
            f"skipped iterations: {int(number <= run.skipped):3d} | number of nan iterations:   0 |"
        )
        if number == 2:
            stages = range(0, run.world, run.world // run.pp)
            for rank in stages:
                yield (
                    f"[Rank {rank}] (after 2 iterations) memory (MB) | allocated: 41234.5 | max allocated: "
                    f"{61234.5 - 100 * rank / run.world:.1f} | reserved: 65536.0 | max reserved: 65536.0"
                )


def bridge(run: Run) -> Iterator[str]:
    yield "------- Task Configuration -------"
    yield "ddp:"
    yield f"  overlap_grad_reduce: {run.options.get('overlap_grad_reduce', 'true').lower()}"
    yield "  use_distributed_optimizer: true"
    yield "model:"
    yield "  _target_: megatron.bridge.models.llama.llama_provider.Llama3ModelProvider70B"
    yield f"  context_parallel_size: {run.cp}"
    yield f"  expert_model_parallel_size: {run.ep}"
    yield "  num_layers: 80"
    yield f"  pipeline_model_parallel_size: {run.pp}"
    yield f"  tensor_model_parallel_size: {run.tp}"
    yield f"  virtual_pipeline_model_parallel_size: {run.vpp if run.vpp > 1 else 'null'}"
    yield "train:"
    yield f"  global_batch_size: {run.gbs}"
    yield f"  micro_batch_size: {run.mbs}"
    yield f"  train_iters: {run.train_iters}"
    yield "----------------------------------"
    if run.refused:
        yield from run.refused
        return
    yield world_line(run).replace("hierarchical context-parallel sizes: None, ", "")
    yield f"INFO:megatron.bridge.training.initialize:> initialized tensor model parallel with size {run.tp}"
    yield "> training ..."
    times = iter(run.steps())
    for line in iterations(run):
        if " iteration " in line:
            _, seconds, _ = next(times)
            yield f"Step Time : {seconds:.2f}s GPU utilization: {1900 / seconds:.1f}MODEL_TFLOP/s/GPU"
        yield line
    yield from run.ends
    if not run.ends and run.logged == run.train_iters:
        yield "[after training is done] datetime: 2025-12-01 09:59:30"


def nemo(run: Run) -> Iterator[str]:
    head = "[NeMo I 2025-10-20 16:04:01 megatron_init:{line}] Rank 0 has {what} group: [{members}]"
    span = run.tp * run.cp
    groups = (
        ("data parallel", [n * span for n in range(run.dp)]),
        ("context parallel", [n * run.tp for n in range(run.cp)]),
        ("tensor model parallel", list(range(run.tp))),
        ("pipeline model parallel", [n * (run.world // run.pp) for n in range(run.pp)]),
        ("expert model parallel", list(range(run.ep))),
    )
    for number, (what, members) in enumerate(groups):
        yield head.format(line=314 + number, what=what, members=", ".join(map(str, members)))
    yield "-" * 100
    yield "distributed_backend=nccl"
    yield f"All distributed processes registered. Starting with {run.world} processes"
    yield "-" * 100
    if run.refused:
        yield from run.refused
        return
    for number, seconds, loss in run.steps():
        shown = loss if loss == "nan" else f"{float(loss):.4g}"
        loss_part = "" if number <= run.skipped else f" | reduced_train_loss: {shown}"
        yield (
            f"Training epoch 0, iteration {number - 1}/{run.train_iters - 1} | lr: 1.500e-07 | "
            f"global_batch_size: {run.gbs} | global_step: {number - 1} | max_memory_reserved: 71303168000 | "
            f"max_memory_allocated: 63110475776{loss_part} | train_step_timing in s: {seconds:.3f} | "
            f"consumed_samples: {number * run.gbs}"
        )
    yield from run.ends
    if not run.ends and run.logged == run.train_iters:
        yield f"`Trainer.fit` stopped: `max_steps={run.train_iters}` reached."


def out_of_memory(rank: int) -> tuple[str, ...]:
    return (
        f"[rank{rank}]: Traceback (most recent call last):",
        f'[rank{rank}]:   File "/opt/megatron-lm/megatron/core/transformer/mlp.py", line 167, in forward',
        f"[rank{rank}]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 1.96 GiB. "
        f"GPU {rank % 8} has a total capacity of 79.10 GiB of which 1.11 GiB is free.",
        f"srun: error: node{rank // 8}: task {rank}: Exited with exit code 1",
    )


def timed_out(rank: int) -> tuple[str, ...]:
    return (
        f"[rank{rank}]:[E1103 12:40:11.551299713 ProcessGroupNCCL.cpp:632] [Rank 5] Watchdog caught "
        "collective operation timeout: WorkNCCL(SeqNum=40213, OpType=ALLREDUCE, NumelIn=33554432, "
        "Timeout(ms)=600000) ran for 600051 milliseconds before timing out.",
        "slurmstepd: error: *** STEP 88123.0 ON dgx-01 CANCELLED AT 2025-11-03T12:41:40 ***",
    )


def refused(words: str, rank: int = 0) -> tuple[str, ...]:
    return (
        f"[rank{rank}]: Traceback (most recent call last):",
        f'[rank{rank}]:   File "/opt/megatron-lm/megatron/core/parallel_state.py", line 601, in '
        "initialize_model_parallel",
        f"[rank{rank}]: {words}",
        "  exitcode  : 1 (pid: 5021)",
    )
