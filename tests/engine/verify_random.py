"""The long run: random plans of many models through levels 0 and 2, as a report.

    python tests/engine/verify_random.py --plans 30 --seed 1

Prints a line a plan and a summary; ends with 1 when the engine and our rules, or the small copy and one
process, ever disagree. Takes 5 to 10 s a plan.
"""

from __future__ import annotations

import argparse
import random
import time
from datetime import date

from meshwright.errors import MeshwrightError
from meshwright.job.spec import Execution, Recompute
from meshwright.layout.layout import Layout
from meshwright.model import catalog
from meshwright.model.spec import Model
from meshwright.verify.engine_fields import CannotBuild
from meshwright.verify.process import EngineProcess
from meshwright.verify.starts import our_reasons
from meshwright.verify.subject import Subject, placed
from meshwright.verify.verification import Verification
from meshwright.verify.verify import verify

RECOMPUTES = ("none", "none", "full", "core_attn", "layernorm", "mlp", "moe", "moe_act", "shared_experts")
DISPATCHERS = ("alltoall", "alltoall", "allgather")
MOST_BUILT_EXPERTS = 64


def random_plan(rng: random.Random, names: tuple[str, ...]) -> Subject | None:
    """A plan that our rules accept; None where this draw is none."""
    try:
        model = catalog.find(rng.choice(names))
    except MeshwrightError:
        return None
    tp, pp = rng.choice([1, 2, 4, 8]), rng.choice([1, 2, 4, 8])
    ep = rng.choice([1, 2, 4, 8, 16, 64]) if model.is_moe else 1
    if model.is_moe and (model.num_experts % ep or model.num_experts // ep > MOST_BUILT_EXPERTS):
        return None
    layout = Layout(
        tp=tp,
        pp=pp,
        vpp=rng.choice([1, 1, 2, 3]) if pp > 1 else 1,
        cp=rng.choice([1, 1, 2]),
        ep=ep,
        etp=rng.choice([1, 1, 2]) if model.is_moe else 1,
        mbs=rng.choice([1, 1, 2]),
        sp=tp > 1,
    )
    world = layout.min_gpus * rng.choice([1, 2, 3])
    batch = layout.mbs * (world // (tp * pp * layout.cp)) * pp * 2
    execution = Execution(
        recompute=recompute(rng.choice(RECOMPUTES), model),
        dispatcher=rng.choice(DISPATCHERS),
        overlaps=frozenset({"dp"}) if rng.random() < 0.7 else frozenset(),
        distributed_optimizer=rng.random() < 0.8,
    )
    subject = Subject(
        model=model,
        layout=layout,
        world=world,
        global_batch=batch,
        execution=execution,
        placement=placed(model, layout),
    )
    try:
        subject.config()
    except CannotBuild:
        return None
    return None if subject.pipeline() is None or our_reasons(subject) else subject


def recompute(name: str, model: Model) -> Recompute:
    if name in ("none", "full"):
        return Recompute(granularity=name)
    if not model.is_moe and name.startswith(("moe", "shared")):
        return Recompute()
    return Recompute(granularity="selective", modules=(name,))


def line(subject: Subject, verification: Verification) -> str:
    levels = ", ".join(f"{level.name} {level.verdict} {level.seconds:.0f} s" for level in verification.levels)
    execution = subject.execution
    flags = f"{execution.recompute} {execution.dispatcher} {subject.placement.pipeline_layout or ''}"
    why = "" if verification.passed else f": {[level.why for level in verification.levels][-1]}"
    return f"{subject.model.name} {subject.layout} on {subject.world} ({flags}): {levels}{why}"


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--plans", type=int, default=30)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--models", nargs="*", default=None)
    said = parser.parse_args()
    rng, names = random.Random(said.seed), tuple(said.models or catalog.names())
    start, bad, done = time.perf_counter(), 0, 0
    with EngineProcess() as engine:
        print(f"{date.today()} {engine.ask('versions')} seed {said.seed}", flush=True)
        while done < said.plans:
            subject = random_plan(rng, names)
            if subject is None:
                continue
            verification = verify(subject, levels=[0, 2], engine=engine)
            done, bad = done + 1, bad + (verification.verdict == "fail")
            print(line(subject, verification), flush=True)
    print(f"{done - bad} of {done} passed in {time.perf_counter() - start:.0f} s")
    return 1 if bad else 0


if __name__ == "__main__":
    raise SystemExit(main())
