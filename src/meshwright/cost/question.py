"""What stays the same while layouts vary: model, cluster, job, software and calibration."""

from __future__ import annotations

from dataclasses import dataclass, field

from meshwright.cluster.spec import Cluster
from meshwright.cost.calibration import Calibration, default_calibration
from meshwright.job.spec import Job, Stack
from meshwright.model.spec import Model


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """One costing question; a `LayoutTable` is asked against it."""

    model: Model
    cluster: Cluster
    job: Job
    stack: Stack = field(default_factory=Stack)
    calibration: Calibration = field(default_factory=default_calibration)
