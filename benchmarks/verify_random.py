"""Random plans of many models through `verify`: what our rules say against what Megatron Core does.

    python benchmarks/verify_random.py [--plans 30] [--seed 1] [--models NAME ...] [--report DIR]

Three kinds of plans, as our rules sort them, and what the engine must say of each:

valid       starts, and a small copy learns what one process learns (levels 0 and 2)
refused     does not start (level 0), for a reason of the engine's own
miscomputes starts and learns something else (level 2 fails), as one of our rules says

Takes 5 to 10 s a valid plan on two cores. Ends with 1 when the engine and our rules ever disagree.
"""

from __future__ import annotations

import argparse
import random
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from meshwright.errors import MeshwrightError
from meshwright.job.spec import Execution, Recompute
from meshwright.layout.layout import Layout
from meshwright.model import catalog
from meshwright.model.spec import Model
from meshwright.verify.engine_config import Placement
from meshwright.verify.engine_fields import CannotBuild
from meshwright.verify.process import EngineProcess
from meshwright.verify.starts import our_reasons
from meshwright.verify.subject import Subject, placed
from meshwright.verify.verification import Verification
from meshwright.verify.verify import verify

RECOMPUTES = ("none", "none", "full", "core_attn", "layernorm", "mlp", "moe", "moe_act", "shared_experts")
DISPATCHERS = ("alltoall", "alltoall", "allgather")
MOST_BUILT_EXPERTS = 64
LEVELS = {"valid": (0, 2), "miscomputes": (0, 2), "refused": (0,)}
EXPECTED = {"valid": ("pass", "pass"), "miscomputes": ("pass", "fail"), "refused": ("fail",)}
"""Levels that a kind of plan goes through, and the verdict that each must end with."""


@dataclass(frozen=True)
class Judged:
    """One plan, how our rules sort it, and what the engine said."""

    kind: str
    subject: Subject
    ours: tuple[str, ...]
    verification: Verification

    @property
    def agrees(self) -> bool:
        levels = self.verification.levels
        said = tuple(level.verdict for level in levels) == EXPECTED[self.kind]
        return said and (self.kind != "refused" or bool(levels[0].evidence.get("engine_says")))

    @property
    def words(self) -> str:
        """The plan in one line."""
        one, split = self.subject, self.subject.placement.pipeline_layout
        flags = [str(one.execution.recompute), one.execution.dispatcher if one.model.is_moe else "", split]
        return f"{one.model.name} {one.layout} on {one.world:,} ({', '.join(filter(None, flags))})"

    @property
    def engine(self) -> str:
        """What the engine said last."""
        level = self.verification.levels[-1]
        return str(level.evidence.get("engine_says") or level.why.partition("; our rules")[0])


def kind_of(subject: Subject) -> str:
    """How our rules sort a plan."""
    if our_reasons(subject):
        return "refused"
    return "miscomputes" if our_reasons(subject, effect="miscomputes") else "valid"


def draw(rng: random.Random, names: tuple[str, ...], *, careful: bool) -> Subject | None:
    """A plan; None where this draw is none that the engine could build here.

    careful  degrees that usually go together; else any at all
    """
    model = catalog.find(rng.choice(names))
    layout, world = degrees(rng, model, careful)
    if model.is_moe and (model.num_experts // layout.ep > MOST_BUILT_EXPERTS):
        return None
    batch = layout.mbs * max(world // (layout.tp * layout.pp * layout.cp), 1) * layout.pp * 2
    odd = not careful and rng.random() < 0.2
    execution = Execution(
        recompute=recompute(rng.choice(RECOMPUTES), model) if careful else Recompute(),
        dispatcher=rng.choice(DISPATCHERS),
        overlaps=frozenset({"dp"}) if rng.random() < 0.7 else frozenset(),
        distributed_optimizer=rng.random() < 0.8,
    )
    subject = Subject(
        model=model, layout=layout, world=world, global_batch=100 if odd else batch, execution=execution,
        seq_length=4098 if not careful and rng.random() < 0.1 else 4096,
        placement=placed(model, layout) if careful or rng.random() < 0.8 else Placement(),
    )  # fmt: skip
    try:
        subject.config()
    except CannotBuild:
        return None
    return subject


def degrees(rng: random.Random, model: Model, careful: bool) -> tuple[Layout, int]:
    tp, pp = (rng.choice([1, 2, 4, 8] if careful else [1, 2, 2, 3, 4, 8]) for _ in range(2))
    moe = model.is_moe
    layout = Layout(
        tp=tp,
        pp=pp,
        vpp=rng.choice([1, 1, 2, 3]) if pp > 1 else 1,
        cp=rng.choice([1, 1, 2] if careful else [1, 1, 2, 3]),
        ep=rng.choice([1, 2, 4, 8, 16, 64] if careful else [1, 2, 3, 4, 8, 16]) if moe else 1,
        etp=rng.choice([1, 1, 2]) if moe else 1,
        mbs=rng.choice([1, 1, 2]),
        sp=tp > 1 and (careful or rng.random() < 0.9),
    )
    extra = 8 if not careful and rng.random() < 0.1 else 0
    return layout, layout.min_gpus * rng.choice([1, 2, 3]) + extra


def recompute(name: str, model: Model) -> Recompute:
    if name in ("none", "full"):
        return Recompute(granularity=name)
    if not model.is_moe and name.startswith(("moe", "shared")):
        return Recompute()
    return Recompute(granularity="selective", modules=(name,))


def plans(rng: random.Random, names: tuple[str, ...], wanted: dict[str, int]) -> Iterator[Subject]:
    """As many plans of each kind as are wanted."""
    left = dict(wanted)
    for _ in range(4000 * sum(wanted.values())):
        if not any(left.values()):
            return
        careful = left.get("valid", 0) + left.get("miscomputes", 0) > 0 and rng.random() < 0.5
        try:
            subject = draw(rng, names, careful=careful)
        except MeshwrightError:
            continue
        if subject is None:
            continue
        kind = kind_of(subject)
        if left.get(kind, 0) and (kind == "refused" or subject.pipeline() is not None):
            left[kind] -= 1
            yield subject


def judge(engine: EngineProcess, subject: Subject) -> Judged:
    """One plan by our rules and by the engine."""
    kind = kind_of(subject)
    ours = our_reasons(subject, effect="miscomputes" if kind == "miscomputes" else "raises")
    return Judged(kind, subject, ours, verify(subject, levels=LEVELS[kind], engine=engine))


def lines(judged: list[Judged], versions: dict[str, Any], seed: int, seconds: float) -> list[str]:
    """The report."""
    from benchmarks.reporting import table

    found = [f"# Random plans on Megatron Core {versions['megatron-core']}", ""]
    found.append(f"Seed {seed}, {seconds:,.0f} s; torch {versions['torch']}, Python {versions['python']}.")
    said = {
        "valid": "valid by our rules: start, and learn what one process learns",
        "refused": "refused by our rules: the engine refuses them too, with its own reason",
        "miscomputes": "said to train wrongly: they start, and learn something else",
    }
    rows = []
    for kind, words in said.items():
        some = [one for one in judged if one.kind == kind]
        rows.append((words, str(len(some)), str(sum(one.agrees for one in some))))
    found += ["", *table(("plans", "number", "the engine agrees on"), rows)]
    apart = [one for one in judged if not one.agrees]
    found += ["", "## Disagreements", ""]
    found += [f"- {one.words}: ours {one.ours or 'none'}; engine: {one.engine}" for one in apart] or ["None."]
    found += ["", "## Valid plans", ""]
    found += table(
        ("plan", "level 0", "level 2", "seconds"),
        [
            (one.words, *(level.verdict for level in one.verification.levels),
             f"{one.verification.seconds:.1f}")
            for one in judged if one.kind == "valid"
        ],
    )  # fmt: skip
    for kind in ("refused", "miscomputes"):
        found += ["", f"## Plans that are {kind}" if kind == "refused" else "## Plans that train wrongly", ""]
        rows = [
            (one.words, one.engine[:160], "; ".join(one.ours)[:160]) for one in judged if one.kind == kind
        ]
        found += table(("plan", "the engine", "our rules"), [tuple(map(_cell, row)) for row in rows])
    return found


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--plans", type=int, default=30, help="valid plans, and as many refused ones")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--models", nargs="*", default=None)
    parser.add_argument("--report", type=Path, default=None, help="folder of the report")
    said = parser.parse_args()
    rng, names = random.Random(said.seed), tuple(said.models or catalog.names())
    wanted = {"valid": said.plans, "refused": said.plans, "miscomputes": max(said.plans // 6, 1)}
    start, judged = time.perf_counter(), []
    with EngineProcess() as engine:
        versions = engine.ask("versions")
        for subject in plans(rng, names, wanted):
            one = judge(engine, subject)
            judged.append(one)
            mark = "ok   " if one.agrees else "APART"
            print(f"{mark} {one.kind:11} {one.words}: {one.engine[:200]}", flush=True)
    from benchmarks.reporting import report_path, write

    path = report_path("verify_random")
    path = said.report / path.name if said.report else path
    command = f"python benchmarks/verify_random.py --plans {said.plans} --seed {said.seed}"
    write(path, lines(judged, versions, said.seed, time.perf_counter() - start), command=command)
    return 0 if all(one.agrees for one in judged) else 1


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[1]))
    raise SystemExit(main())
