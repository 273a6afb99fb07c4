"""Level 2: a small copy of the plan trains on real ranks and learns what one process learns."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from meshwright.errors import QuestionError, did_you_mean
from meshwright.layout.layout import Layout
from meshwright.verify.log_judge import Expected, judge_log
from meshwright.verify.logs import read_log
from meshwright.verify.process import EngineProcess
from meshwright.verify.shrink import SmallCopy, shrink
from meshwright.verify.starts import our_reasons
from meshwright.verify.subject import Subject
from meshwright.verify.verification import Outcome

FAULTS = ("sp-grad-sync", "wrong-shard", "no-finalize")
"""sp-grad-sync: gradients of replicated weights are not summed over sequence-parallel ranks;
wrong-shard: a rank starts with another's part of a weight; no-finalize: gradients are not reduced."""

LOSS_TOLERANCE = 5e-6
NORM_TOLERANCE = 1e-5
"""fp32; a missing gradient sum moves the loss by 1e-4 at least. The norm's is relative."""

ITERATIONS = 3
SECONDS = 60.0
"""Most time for one run of the ranks [s]; usual is 1 to 8."""


def trains(engine: EngineProcess, subject: Subject, fault: str | None = None) -> Outcome:
    """Run the small copy, the same model in one process, and the copy with a fault that must be seen.

    fault  None chooses one that the plan can have; given, it is what is judged, and the level fails.
    """
    small = shrink(subject)
    injected = fault or applicable_faults(small.subject)[:1]
    chosen = [fault] if fault else list(injected)
    check_fault(fault, small.subject)
    answer = engine.ask(
        "train",
        plan=small.subject.config(dtype="fp32").request(),
        reference=small.reference.config(dtype="fp32").request(),
        training=training(small.subject),
        faults=chosen,
        timeout=SECONDS * (2 + len(chosen)) + 20,
    )
    if failures := answer["reference"]["failures"]:
        return Outcome("fail", f"the model does not train in one process: {last_line(failures[0]['text'])}")
    if fault:
        return faulty_outcome(fault, small, answer)
    found = outcome(small, answer, chosen)
    ours = our_reasons(subject, effect="miscomputes") if found.verdict == "fail" else ()
    if ours:
        return Outcome(
            "fail", f"{found.why}; our rules: {ours[0]}", {**found.evidence, "our_rules": list(ours)}
        )
    return found


def training(small: Subject) -> dict[str, Any]:
    """How the small copy is trained."""
    cp = small.layout.cp
    return {
        "seconds": SECONDS,
        "iterations": ITERATIONS,
        "seq_length": small.seq_length,
        "global_batch": small.global_batch,
        "micro_batch": small.layout.mbs,
        "vocab": small.model.vocab_size,
        "lr": 2e-3,
        "distributed_optimizer": small.execution.distributed_optimizer,
        "overlap": "dp" in small.execution.overlaps,
        # one label inside the first chunk of every context-parallel rank but the first
        "masked": [small.seq_length // (2 * cp) * rank + 3 for rank in range(1, cp)],
    }


def applicable_faults(small: Subject) -> tuple[str, ...]:
    """Faults that this layout can have."""
    layout: Layout = small.layout
    possible = {
        "sp-grad-sync": layout.sp,
        "no-finalize": layout.dp(small.world) * layout.cp > 1,
        "wrong-shard": layout.tp > 1 or layout.pp > 1 or layout.ep > 1,
    }
    return tuple(name for name, can in possible.items() if can)


def check_fault(fault: str | None, small: Subject) -> None:
    if fault is None:
        return
    if fault not in FAULTS:
        near = did_you_mean(fault, FAULTS) or "."
        raise QuestionError(f"unknown fault {fault!r}{near} Known: {', '.join(FAULTS)}")
    if fault not in applicable_faults(small):
        raise QuestionError(f"{small.layout} on {small.world} ranks cannot have the fault {fault}")


def outcome(small: SmallCopy, answer: Mapping[str, Any], faults: list[str]) -> Outcome:
    """The verdict on the run as it is, and on what the injected fault did."""
    reasons = run_reasons(small, answer["plan"], answer["reference"])
    evidence = evidence_of(small, answer, faults)
    if reasons:
        return Outcome("fail", reasons[0], evidence)
    missed = [fault for fault in faults if not run_reasons(small, answer[fault], answer["reference"])]
    if missed:
        return Outcome("fail", f"the injected fault {missed[0]} went unseen", evidence)
    loss, norm = gaps(answer["plan"], answer["reference"])
    seen = f"; the injected fault {faults[0]} was seen" if faults else ""
    text = f"{small.subject.layout} on {small.subject.world} ranks learns what one process learns"
    text += f" (loss {loss:.0e}, gradient norm {norm:.0e} apart){seen}"
    return Outcome("pass", "; ".join([text, *evidence["notes"]]), evidence)


def faulty_outcome(fault: str, small: SmallCopy, answer: Mapping[str, Any]) -> Outcome:
    """A run that was asked to be wrong: it fails, and says which fault it carries."""
    reasons = run_reasons(small, answer[fault], answer["reference"])
    evidence = evidence_of(small, answer, [fault])
    if not reasons:
        return Outcome("fail", f"the injected fault {fault} went unseen", evidence)
    return Outcome("fail", f"caught the injected fault {fault}: {reasons[0]}", evidence)


def run_reasons(small: SmallCopy, run: Mapping[str, Any], reference: Mapping[str, Any]) -> list[str]:
    """Why a run is no success: a rank failed, the log is not as it should be, or it learns otherwise."""
    if run["failures"]:
        first = run["failures"][0]
        return [f"rank {first['rank']} failed: {last_line(first['text'])}"]
    reasons = list(judge_log(read_log(log_of(run)), expected(small.subject)).reasons)
    loss, norm = gaps(run, reference)
    if loss > LOSS_TOLERANCE:
        reasons.append(f"the loss is {loss:.1e} off that of one process (at most {LOSS_TOLERANCE:.0e})")
    if norm > NORM_TOLERANCE:
        reasons.append(f"the gradient norm is {norm:.1e} off, relatively (at most {NORM_TOLERANCE:.0e})")
    return reasons


def expected(small: Subject) -> Expected:
    layout = small.layout
    degrees = {name: getattr(layout, name) for name in ("tp", "pp", "cp")}
    return Expected(
        degrees=degrees | {"dp": layout.dp(small.world)}, world=small.world, iterations=ITERATIONS
    )


def log_of(run: Mapping[str, Any]) -> str:
    """The log that the last rank wrote."""
    return "\n".join(run["ranks"][-1]["log"])


def gaps(run: Mapping[str, Any], reference: Mapping[str, Any]) -> tuple[float, float]:
    """Largest distance of the losses, and of the gradient norms (relative)."""
    mine, alone = run["ranks"][-1]["history"], reference["ranks"][0]["history"]
    pairs = list(zip(mine, alone, strict=True))
    loss = max(abs(one[0] - other[0]) for one, other in pairs)
    return loss, max(abs(one[1] - other[1]) / other[1] for one, other in pairs)


def evidence_of(small: SmallCopy, answer: Mapping[str, Any], faults: list[str]) -> dict[str, Any]:
    """Plain values: the small plan, and loss and norm of each run."""
    subject = small.subject
    runs = {}
    for name in ("reference", "plan", *faults):
        run = answer.get(name)
        if run and not run["failures"]:
            runs[name] = [{"loss": loss, "grad_norm": norm} for loss, norm in run["ranks"][-1]["history"]]
    return {
        "small_layout": str(subject.layout),
        "ranks": subject.world,
        "layers": subject.model.num_layers,
        "pipeline_layout": subject.placement.pipeline_layout,
        "injected": list(faults),
        "runs": runs,
        "tolerance": {"loss": LOSS_TOLERANCE, "grad_norm_relative": NORM_TOLERANCE},
        "notes": [*small.notes, *subject.config(dtype="fp32").notes],
        "log": log_of(answer["plan"]).splitlines() if not answer["plan"]["failures"] else [],
    }


def last_line(text: str) -> str:
    """The exception at the end of a traceback."""
    lines = text.strip().splitlines()
    return lines[-1] if lines else "it ended without a word"
