"""Level 0: the plan starts. Groups of the whole world, the model of every stage, the first step's checks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from meshwright.job.spec import Job
from meshwright.layout.ranks import RankGrid
from meshwright.layout.rules import View, check, rule
from meshwright.layout.rules.rule import Effect
from meshwright.verify.engine_fields import RELEASE
from meshwright.verify.parameters import differences, own_counts
from meshwright.verify.process import EngineError, EngineProcess
from meshwright.verify.subject import Subject
from meshwright.verify.verification import Outcome, refusal

MOST_REASONS = 5
SHOWN_GROUPS = ("tp", "cp", "dp", "pp", "ep", "etp", "edp")


def starts(engine: EngineProcess, subject: Subject) -> Outcome:
    """Built for real: all groups, one rank of every stage on the meta device, parameters against our own."""
    ours = our_reasons(subject)
    try:
        return built(engine, subject, ours)
    except EngineError as error:
        said = refusal(error)
        beside = f"; our rules: {ours[0]}" if ours else "; our rules found nothing"
        return Outcome(said.verdict, said.why + beside, {**said.evidence, "our_rules": list(ours)})


def built(engine: EngineProcess, subject: Subject, ours: tuple[str, ...]) -> Outcome:
    """What was built, and whether it is what we count; EngineError where the engine refuses."""
    config = subject.config()
    ranks = [stage * (subject.world // subject.layout.pp) for stage in range(subject.layout.pp)]
    request = config.request()
    engine.ask(
        "valid",
        seq_length=subject.seq_length,
        micro_batch_size=subject.layout.mbs,
        global_batch_size=subject.global_batch,
        **request,
    )
    groups = engine.ask("groups", world=subject.world, mesh=dict(config.mesh))
    stages = engine.ask("parameters", ranks=ranks, **request)
    wrong = [*group_differences(subject, groups), *parameter_differences(subject, stages)]
    evidence = {
        "engine": engine.ask("versions"),
        "groups": {name: shape(groups[name]) for name in SHOWN_GROUPS if name in groups},
        "stages": [stage(rank) for rank in stages],
        "differences": wrong,
        "our_rules": list(ours),
        "notes": list(config.notes),
    }
    if wrong:
        return Outcome("fail", wrong[0] + (f" and {len(wrong) - 1} more" if wrong[1:] else ""), evidence)
    return Outcome("pass", summary(subject, groups, stages), evidence)


def our_reasons(subject: Subject, effect: Effect = "raises") -> tuple[str, ...]:
    """Why the plan cannot start by our own rules, as raw Megatron Core would be told it.

    effect  "miscomputes" asks instead why it starts and trains wrongly
    """
    placement = subject.placement
    said = {
        "world_size": subject.world,
        "order": placement.order,
        "pipeline_model_parallel_layout": placement.pipeline_layout,
        "num_layers_in_first_pipeline_stage": placement.first_stage_layers,
        "num_layers_in_last_pipeline_stage": placement.last_stage_layers,
        "account_for_embedding_in_pipeline_split": placement.account_for_embedding or None,
        "account_for_loss_in_pipeline_split": placement.account_for_loss or None,
    }
    # A batch that nobody named is one that fits.
    batch = subject.global_batch or subject.world * subject.layout.pp * subject.layout.mbs
    view = View.of(
        {name: value for name, value in said.items() if value is not None},
        framework="megatron-core",
        version=RELEASE,
        layout=subject.layout,
        model=subject.model,
        job=Job(seq_length=subject.seq_length, global_batch=batch),
        execution=subject.execution,
    )
    stops = [finding.message for finding in check(view) if rule(finding.rule).effect == effect]
    return tuple(stops)[:MOST_REASONS]


def group_differences(subject: Subject, built: Mapping[str, list[list[int]]]) -> list[str]:
    """Kinds of groups whose members differ from those of our own rank grid."""
    grid = RankGrid(
        layout=subject.layout,
        world=subject.world,
        order=subject.placement.order,
        hierarchical_cp=subject.placement.hierarchical_cp,
        distributed_optimizer_instances=subject.execution.optimizer_instances,
    )
    return [
        f"the engine's {name} groups differ from ours"
        for name, members in grid.groups.items()
        if name in built and sorted(members.tolist()) != sorted(built[name])
    ]


def parameter_differences(subject: Subject, built: list[dict[str, Any]]) -> list[str]:
    """Chunks whose parameters we count differently."""
    pipeline = subject.pipeline()
    if pipeline is None:
        return [f"we know no split of {subject.model.num_layers} layers over {subject.layout}"]
    own = own_counts(subject, pipeline)
    return [text for rank in built for text in differences(own[rank["pp"]], rank)]


def stage(rank: dict[str, Any]) -> dict[str, Any]:
    """Evidence of one stage: its rank, its chunks' layers and parameters."""
    chunks = rank["chunks"]
    return {
        "stage": rank["pp"],
        "rank": rank["rank"],
        "layers": [len(chunk["layers"]) for chunk in chunks],
        "dense_parameters": sum(chunk["dense"] for chunk in chunks),
        "expert_parameters": sum(chunk["expert"] for chunk in chunks),
    }


def shape(groups: list[list[int]]) -> dict[str, Any]:
    return {"groups": len(groups), "size": len(groups[0]), "first": groups[0][:8]}


def summary(subject: Subject, groups: Mapping[str, Any], stages: list[dict[str, Any]]) -> str:
    totals = [sum(chunk["dense"] + chunk["expert"] for chunk in rank["chunks"]) for rank in stages]
    kinds = sum(len(lists) for lists in groups.values())
    place = "the one stage" if len(stages) == 1 else f"all {len(stages)} stages"
    return (
        f"{kinds:,} groups of {subject.world:,} ranks and {place} built; "
        f"{max(totals):,} parameters on the fullest, as we count"
    )
