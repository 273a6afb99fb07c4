"""Rules of the batch: micro-batches must come out whole, and enough of them for the schedule."""

from __future__ import annotations

import math
from itertools import pairwise

import numpy as np

from meshwright.layout.rules.numbers import divisors, multiples_around
from meshwright.layout.rules.rule import BRIDGE, CORE, LM, Rule, given
from meshwright.layout.rules.view import Undecided, View


def _divides_message(v: View) -> str:
    step = v.mbs * v.dp
    return (
        f"a global batch of {v.gbs} is not a multiple of mbs {v.mbs} x dp {v.dp} = {step} "
        f"({v.gbs} % {step} = {v.gbs % step}){_mbs_words(v)}"
    )


def _mbs_words(v: View) -> str:
    """Micro-batch sizes that divide what each data-parallel rank gets."""
    if v.gbs % v.dp:
        return ""
    sizes = [size for size in divisors(int(v.gbs // v.dp)) if size < v.mbs][-2:]
    return f"; MBS {' or '.join(map(str, sizes))} works" if sizes else ""


def _ramp(v: View) -> bool:
    return bool(v.get("rampup_batch_size") or v.get("step_batch_size_schedule"))


def ramp_sizes(v: View) -> tuple[int, ...]:
    """Every global batch that a ramp or a step schedule passes through."""
    ramp, schedule = v.get("rampup_batch_size"), v.get("step_batch_size_schedule")
    if schedule:
        return tuple(size for _, size in parse_schedule(schedule))
    if not ramp:
        return ()
    words = ramp.split() if isinstance(ramp, str) else list(ramp)
    start, step = int(words[0]), int(words[1])
    sizes = tuple(range(start, v.gbs, step)[:10_000]) if step > 0 else (start,)
    return (*sizes, int(v.gbs))


def parse_schedule(text: object) -> tuple[tuple[int, int], ...]:
    """`0:64 1B:128` as (samples, batch) pairs; units k, M, B, T are decimal."""
    units = {"K": 10**3, "M": 10**6, "B": 10**9, "T": 10**12}
    pairs = []
    for word in str(text).replace(",", " ").split():
        threshold, _, size = word.partition(":")
        unit = units.get(threshold[-1:].upper(), 1)
        number = float(threshold[:-1] if unit > 1 else threshold)
        pairs.append((int(number * unit), int(size)))
    return tuple(pairs)


def _schedule_fault(v: View) -> str:
    """What is wrong with a step schedule; empty when nothing is."""
    try:
        pairs = parse_schedule(v.value("step_batch_size_schedule"))
    except ValueError:
        return "cannot be read as threshold:batch pairs"
    thresholds = [threshold for threshold, _ in pairs]
    if not pairs or thresholds[0] != 0:
        return f"starts at {thresholds[0] if pairs else 'nothing'}, not at 0"
    if any(later <= earlier for earlier, later in pairwise(thresholds)):
        return f"has thresholds {thresholds} that do not rise"
    if any(size <= 0 for _, size in pairs):
        return "has a batch of 0"
    return "allows no decrease_batch_size_if_needed" if v.on("decrease_batch_size_if_needed") else ""


MBS_POSITIVE = Rule(
    id="mbs-positive",
    aliases=("R018",),
    area="batch",
    must="the micro-batch size is given and above 0",
    why="It is the number of samples in one forward pass.",
    severity="error",
    enforced_by=LM,
    source="megatron/training/arguments.py, validate_args",
    holds=lambda v: v["micro_batch_size"] > 0,
    message="the micro-batch size is {micro_batch_size}; it must be at least 1",
    fix="--micro-batch-size 1",
    breaks=given(mbs=0),
    passes=given(mbs=1),
)

GBS_UNSET = Rule(
    id="gbs-unset",
    aliases=("R019",),
    area="batch",
    must="the global batch size is given, or MBS*DP is what is wanted",
    why="Left unset it becomes one micro-batch a data-parallel rank and changes with the number of GPUs.",
    severity="warn",
    enforced_by=LM,
    effect="fills",
    source="megatron/training/arguments.py, validate_args",
    applies=lambda v: not _ramp(v),
    holds=lambda v: v.gave("global_batch_size"),
    message="global batch unset: Megatron-LM takes MBS*DP = {mbs}*{dp} = {gbs}",
    fix="give --global-batch-size",
    breaks=given(world=8, mbs=2),
    passes=given(world=8, mbs=2, gbs=16),
)

GBS_DIVIDES = Rule(
    id="gbs-divides",
    aliases=("R020",),
    area="batch",
    must="the global batch is a multiple of MBS*DP",
    why="Every data-parallel rank runs the same whole number of micro-batches.",
    severity="error",
    enforced_by=CORE,
    source="megatron/core/num_microbatches_calculator.py, ConstantNumMicroBatchesCalculator",
    applies=lambda v: (
        not v.on("decrease_batch_size_if_needed")
        and not v.get("step_batch_size_schedule")
        and np.equal(v.world % v.dense_grid, 0)
    ),
    holds=lambda v: v.gbs % (v.mbs * v.dp) == 0,
    message=_divides_message,
    nearest=lambda v: multiples_around(v.mbs * v.dp, v.gbs),
    fix=lambda v: f"use a global batch that is a multiple of {v.mbs * v.dp}, or another micro-batch size",
    mask=True,
    breaks=given(world=128, gbs=192, mbs=1),
    passes=given(world=128, gbs=256, mbs=1),
)

GBS_ROUNDED = Rule(
    id="gbs-rounded-down",
    aliases=("R021",),
    area="batch",
    must="with decrease_batch_size_if_needed, the global batch is still a multiple of MBS*DP",
    why="The flag trains with a smaller batch than the one asked for.",
    severity="warn",
    enforced_by=CORE,
    effect="changes",
    source="megatron/core/num_microbatches_calculator.py, ConstantNumMicroBatchesCalculator",
    applies=lambda v: v.on("decrease_batch_size_if_needed") and v.gbs >= v.mbs * v.dp,
    holds=lambda v: v.gbs % (v.mbs * v.dp) == 0,
    message=lambda v: (
        f"the global batch {v.gbs} becomes {v.gbs - v.gbs % (v.mbs * v.dp)}, the multiple of "
        f"mbs {v.mbs} x dp {v.dp} below it"
    ),
    fix="give a global batch that MBS*DP divides",
    breaks=given(world=16, gbs=100, mbs=1, decrease_batch_size_if_needed=True),
    passes=given(world=16, gbs=96, mbs=1, decrease_batch_size_if_needed=True),
)

ONE_MICROBATCH = Rule(
    id="one-microbatch",
    aliases=("R022",),
    area="batch",
    must="there is at least one micro-batch a step: GBS >= MBS*DP",
    why="A data-parallel rank without a micro-batch has nothing to do.",
    severity="error",
    enforced_by=CORE,
    source="megatron/core/num_microbatches_calculator.py",
    applies=lambda v: not v.get("step_batch_size_schedule"),
    holds=lambda v: v.gbs >= v.mbs * v.dp,
    message="a global batch of {gbs} gives dp {dp} ranks less than one micro-batch of {mbs} each",
    nearest=lambda v: (v.mbs * v.dp,),
    fix="raise the global batch, or use fewer data-parallel ranks (more TP, PP or CP)",
    mask=True,
    breaks=given(world=16, gbs=8, mbs=1, decrease_batch_size_if_needed=True),
    passes=given(world=16, gbs=16, mbs=1, decrease_batch_size_if_needed=True),
)

RAMP_STEPS = Rule(
    id="ramp-steps-divide",
    aliases=("R026",),
    area="batch",
    must="every batch of a ramp or step schedule is a multiple of MBS*DP, the schedule starts at 0 and rises",
    why="The job stops in the middle of training at the first step that does not divide.",
    severity="error",
    enforced_by=CORE,
    source="megatron/core/num_microbatches_calculator.py, Rampup/StepBatchsizeNumMicroBatchesCalculator",
    applies=_ramp,
    holds=lambda v: not _ramp_fault(v),
    message=lambda v: _ramp_fault(v),
    fix=lambda v: "start at 0 and let every batch be a multiple of MBS*DP",
    breaks=given(world=8, mbs=1, step_batch_size_schedule="10:64"),
    passes=given(world=8, mbs=1, step_batch_size_schedule="0:64 1B:128"),
)


def _ramp_fault(v: View) -> str:
    if v.get("step_batch_size_schedule"):
        fault = _schedule_fault(v)
        if fault:
            return f"the batch schedule {v['step_batch_size_schedule']!r} {fault}"
    if v.on("decrease_batch_size_if_needed"):
        return ""
    step = int(v.mbs * v.dp)
    sizes = ramp_sizes(v)
    wrong = [size for size in sizes if size % step]
    if not wrong:
        return ""
    nearest = " or ".join(map(str, multiples_around(step, wrong[0])))
    return (
        f"the batch ramp passes {len(wrong)} of {len(sizes)} sizes that mbs {v.mbs} x dp {v.dp} = {step} "
        f"does "
        f"not divide, first {wrong[0]}; nearest: {nearest}"
    )


RAMP_DEPRECATED = Rule(
    id="ramp-deprecated",
    aliases=("R027",),
    area="batch",
    must="batch sizes grow by a step schedule, not by rampup_batch_size",
    why="Megatron Core warns that the ramp will be removed.",
    severity="warn",
    enforced_by=CORE,
    effect="warns",
    since="2026-04-20",
    source="megatron/core/num_microbatches_calculator.py, init_num_microbatches_calculator",
    holds=lambda v: not v.get("rampup_batch_size"),
    message="rampup_batch_size {rampup_batch_size} is deprecated",
    fix="use --step-batch-size-schedule",
    breaks=given(world=8, mbs=1, gbs=64, rampup_batch_size="16 16 1000"),
    passes=given(world=8, mbs=1, step_batch_size_schedule="0:64 1B:128"),
)

SCHEDULE_OR_GBS = Rule(
    id="schedule-or-gbs",
    aliases=("R025",),
    area="batch",
    must="a step batch schedule and an explicit global batch are not given together",
    why="The schedule says what the batch is.",
    severity="error",
    enforced_by=LM,
    since="2026-04-20",
    source="megatron/training/arguments.py, validate_args",
    applies=lambda v: bool(v.get("step_batch_size_schedule")),
    holds=lambda v: not v.gave("global_batch_size"),
    message="both a batch schedule {step_batch_size_schedule} and a global batch {global_batch_size} are "
    "given",
    fix="drop --global-batch-size",
    breaks=given(world=8, mbs=1, gbs=64, step_batch_size_schedule="0:64 1B:128"),
    passes=given(world=8, mbs=1, step_batch_size_schedule="0:64 1B:128"),
)


def _eval_step(v: View) -> int:
    """Samples that all data-parallel ranks take together in one evaluation micro-batch."""
    cp = v.get("eval_context_parallel_size") or v.cp
    dp = v.world // (v.tp * v.pp * cp)
    return int((v.get("eval_micro_batch_size") or v.mbs) * max(dp, 1))


EVAL_DIVIDES = Rule(
    id="eval-gbs-divides",
    aliases=("R023", "R024"),
    area="batch",
    must="the evaluation batch is a multiple of the evaluation MBS times DP",
    why="Evaluation shares the data-parallel ranks of training.",
    severity="error",
    enforced_by=(*LM, *BRIDGE),
    source="megatron/training/arguments.py, validate_args; Megatron Bridge config.py, "
    "ConfigContainer.validate",
    applies=lambda v: v.gave("eval_global_batch_size"),
    holds=lambda v: v["eval_global_batch_size"] % _eval_step(v) == 0,
    message=lambda v: (
        f"an evaluation batch of {v['eval_global_batch_size']} is not a multiple of MBS*DP = {_eval_step(v)}"
    ),
    nearest=lambda v: multiples_around(_eval_step(v), v["eval_global_batch_size"]),
    fix="change the evaluation batch",
    breaks=given(world=8, mbs=1, gbs=8, eval_global_batch_size=12),
    passes=given(world=8, mbs=1, gbs=8, eval_global_batch_size=16),
)

RL_MBS = Rule(
    id="rl-packing-mbs",
    aliases=("R028",),
    area="batch",
    must="RL with sequence packing uses a micro-batch of 1",
    why="A pack is already a batch.",
    severity="error",
    enforced_by=LM,
    source="megatron/training/arguments.py, validate_args",
    applies=lambda v: v.on("rl_use_sequence_packing"),
    holds=lambda v: v.mbs == 1,
    message="RL sequence packing needs a micro-batch size of 1, and it is {mbs}",
    fix="--micro-batch-size 1",
    breaks=given(mbs=2, rl_use_sequence_packing=True),
    passes=given(mbs=1, rl_use_sequence_packing=True),
)

RL_SAMPLES = Rule(
    id="rl-samples-divide",
    aliases=("R029",),
    area="batch",
    must="RL: prompts x group size x iterations is a multiple of the global batch",
    why="All sampled sequences are trained on, in whole steps.",
    severity="error",
    enforced_by=LM,
    source="megatron/training/arguments.py, validate_args",
    applies=lambda v: v.gave("grpo_prompts_per_step"),
    holds=lambda v: _rl_samples(v) % v.gbs == 0,
    message=lambda v: f"{_rl_samples(v)} sampled sequences are not a multiple of the global batch {v.gbs}",
    fix="change the prompts a step, the group size or the global batch",
    breaks=given(gbs=64, grpo_prompts_per_step=12, grpo_group_size=8),
    passes=given(gbs=64, grpo_prompts_per_step=16, grpo_group_size=8),
)


def _rl_samples(v: View) -> int:
    return int(math.prod((v["grpo_prompts_per_step"], v["grpo_group_size"], v.get("grpo_iterations") or 1)))


def microbatch_words(v: View) -> str:
    """`DP=32, 30 microbatches of 4`, where it is known and whole."""
    try:
        if v.world % v.dense_grid or v.gbs % (v.mbs * v.dp):
            return ""
        return f"DP={v.dp}, {v.num_microbatches} microbatches of {v.mbs}"
    except Undecided:
        return ""


RULES = (
    MBS_POSITIVE,
    GBS_UNSET,
    GBS_DIVIDES,
    GBS_ROUNDED,
    ONE_MICROBATCH,
    EVAL_DIVIDES,
    SCHEDULE_OR_GBS,
    RAMP_STEPS,
    RAMP_DEPRECATED,
    RL_MBS,
    RL_SAMPLES,
)
