"""`advise`: the parallelism guide's answer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from meshwright.cluster.parse import parse_cluster, parse_gpu_count
from meshwright.cluster.spec import Cluster
from meshwright.model.load import load_model
from meshwright.model.parameters import count_parameters
from meshwright.model.spec import Model
from meshwright.planner.guide import Advice, GuideQuestion
from meshwright.planner.guide import advise as guide_advise


def advise(
    model: str | Model | None = None, *, gpus: int | str | Cluster | None = None,
    degrees: Mapping[str, int] | None = None, params_b: float | None = None, active_b: float | None = None,
    seq_length: int | None = None, sp: bool | None = None, network: str | None = None,
    topics: Sequence[str] | None = None,
) -> Advice:  # fmt: skip
    """What the parallelism guide says of a model or size, and what holds; everything may be left out.

    params_b, active_b  billions of parameters, in place of a model
    gpus                a number, or a cluster ("256xH100")
    """
    described = load_model(model) if isinstance(model, str) else model
    total, active = (None if b is None else b * 1e9 for b in (params_b, active_b))
    if described is not None:
        counted = count_parameters(described)
        total, active = float(counted.total), float(counted.active)
    if isinstance(gpus, str):
        gpus = parse_gpu_count(gpus) if gpus.strip().lstrip("+-").isdigit() else parse_cluster(gpus)
    question = GuideQuestion(
        model=described, total_params=total, active_params=active, gpus=gpus, degrees=degrees or {},
        sp=sp, seq_length=seq_length, network=network,  # type: ignore[arg-type]
    )  # fmt: skip
    return guide_advise(question, topics)
