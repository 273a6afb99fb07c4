"""Robust least squares towards priors: how every constant of the cost room is fitted.

Minimises  sum w * softL1(residual) + sum ((x - prior) / width)^2  by Gauss-Newton with damping.
numpy only; nothing here knows what the parameters mean.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from meshwright.layout.table import Floats

Residuals = Callable[[Floats], Floats]
"""Parameters [P] -> residuals [N], in units of their own noise."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fitted:
    """Parameters of a fit, and how sure they are.

    values   [P]
    error    [P] standard error from the curvature, priors included
    cost     the minimised sum
    """

    values: Floats
    error: Floats
    cost: float


def robust_fit(
    residuals: Residuals,
    prior: Floats,
    width: Floats,
    *,
    weights: Floats | None = None,
    start: Floats | None = None,
    step: float = 1e-3,
    iterations: int = 30,
    tolerance: float = 1e-6,
) -> Fitted:
    """Fit parameters towards their priors.

    prior, width  [P] where the parameters are believed to be, and how firmly
    weights       [N] one a residual; 1 where absent
    step          of the finite differences

    soft-L1 counts a residual r as 2*(sqrt(1 + r^2) - 1): squared where small, linear where large.
    """
    x = np.array(prior if start is None else start, dtype=float)
    w = np.ones(len(residuals(x))) if weights is None else np.asarray(weights, dtype=float)

    def cost(at: Floats, r: Floats) -> float:
        return float((w * 2 * (np.sqrt(1 + r**2) - 1)).sum() + (((at - prior) / width) ** 2).sum())

    r = residuals(x)
    now, damping = cost(x, r), 1e-3
    curvature = np.eye(len(x))
    for _ in range(iterations):
        jacobian = _jacobian(residuals, x, r, step)
        scale = w / np.sqrt(1 + r**2)
        curvature = jacobian.T @ (jacobian * scale[:, None]) + np.diag(1 / width**2)
        slope = jacobian.T @ (scale * r) + (x - prior) / width**2
        improved = False
        for _ in range(12):
            moved = x - np.linalg.solve(curvature + damping * np.diag(np.diag(curvature)), slope)
            new = residuals(moved)
            if np.isfinite(new).all() and (after := cost(moved, new)) < now:
                improved = True
                break
            damping *= 4
        if not improved:
            break
        gain, x, r, now, damping = now - after, moved, new, after, max(damping / 6, 1e-9)
        if gain < tolerance * max(now, 1e-12):
            break
    return Fitted(values=x, error=np.sqrt(np.diag(np.linalg.inv(curvature))), cost=now)


def _jacobian(residuals: Residuals, x: Floats, r: Floats, step: float) -> Floats:
    """Forward differences. [N, P]"""
    columns = []
    for index in range(len(x)):
        moved = x.copy()
        moved[index] += step
        columns.append((residuals(moved) - r) / step)
    return np.stack(columns, axis=1)
