"""What stays the same while layouts vary: model, cluster, job, software and calibration."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

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

    @property
    def measured(self) -> Mapping[str, Any]:
        """Kernel constants that somebody measured, by GPU name: the cluster's own, and the calibration's."""
        gpu = self.cluster.gpu
        return {**self.calibration.measured, **({gpu.name: gpu.kernels} if gpu.kernels else {})}
