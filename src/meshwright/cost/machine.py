"""What prices the operations of a layer: kernels, links and groups of every key, and the calibration."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from meshwright.cost.activations import Tokens, tokens
from meshwright.cost.kernels import GemmConstants, Kernels, gemm_seconds, kernels_of
from meshwright.cost.keys import Keys
from meshwright.cost.network import Group, Network, network_of
from meshwright.cost.precision import Recipe, recipe_for
from meshwright.cost.question import Question
from meshwright.layout.table import Floats
from meshwright.model.spec import Model


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """Seconds of one operation of a block, for one micro-batch. [Q]"""

    term: str
    forward: Floats
    backward: Floats
    modules: tuple[str, ...] = ()
    """Names of recompute modules that contain it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """Everything that prices an operation: tokens, kernels, links and the groups of each key."""

    question: Question
    keys: Keys
    tok: Tokens
    kernels: Kernels
    network: Network
    recipe: Recipe
    tp: Group
    cp: Group
    ep: Group
    etp: Group

    @property
    def model(self) -> Model:
        return self.question.model

    @property
    def architecture(self) -> str:
        return self.question.cluster.gpu.architecture

    def factor(self, name: str, *kinds: str) -> float:
        """A multiplier of the calibration, on this architecture where it has one of its own."""
        if self.kernels.sustained and name in ("gemm", "attention", "memory_bound"):
            return 1.0
        return self.question.calibration.factor(name, *self.kernels.kinds, *kinds)

    @property
    def frozen(self) -> bool:
        """Base weights take no gradient: no weight-gradient GEMMs, nothing to reduce."""
        return self.question.job.task == "lora"

    def gemm(
        self,
        m: Floats,
        n: Floats,
        k: Floats,
        groups: Floats | float = 1.0,
        *,
        quantised: bool,
        wgrad: bool = False,
        apart: Floats | float = 0.0,
    ) -> Floats:
        """Seconds of `groups` GEMMs at the sustained rate. [Q]"""
        fmt = self.recipe.gemm if quantised else "bf16"
        out = self.kernels.table["wgrad_bytes"][self.question.job.grad_dtype] if wgrad else 2.0
        seconds = gemm_seconds(self.gemm_constants(quantised=quantised), m, n, k, groups, out, apart)
        # the power limit throttles what a whole job draws: bf16 GEMMs in an fp8 job run at its clock
        power = fmt if quantised or not self.recipe.quantised else "fp8"
        own = (power, *(f"{kind} {power}" for kind in self.kernels.kinds))
        kinds = (*self.kernels.kinds, *own, *((self.recipe.name,) if quantised else ()))
        if self.kernels.sustained and self.kernels.burst(fmt):  # this format alone was not measured here
            factor = self.question.calibration.factor("gemm", *kinds)
        else:
            factor = self.factor("gemm", *kinds[len(self.kernels.kinds) :])
        return np.asarray(seconds * factor)

    def gemm_constants(self, *, quantised: bool) -> GemmConstants:
        return self.kernels.gemm(self.recipe.gemm if quantised else "bf16")

    def memory(
        self, forward: Floats, backward: Floats, *, launches: Floats | float, modules: tuple[str, ...] = ()
    ) -> Operation:
        """A memory-bound operation, by the bytes it moves forward and backward."""
        factor = self.factor("memory_bound")
        return Operation(
            term="memory_bound",
            forward=self.kernels.memory_bound(forward, launches) * factor,
            backward=self.kernels.memory_bound(backward, launches) * factor,
            modules=modules,
        )

    def quantise(self, elements: Floats, tensors: Floats | float = 1.0) -> Floats:
        """Seconds to bring elements into the number format of the recipe. [Q]

        tensors  in how many pieces of their own scale: with one scale a tensor each takes its own kernels
        """
        form = self.kernels.table["quantise"]
        moved = form[self.recipe.name] * elements
        alone = form["kernels_a_tensor"].get(self.recipe.name, 0.0)
        launches = np.maximum(alone * tensors, 1.0)
        seconds = moved / (form["efficiency"] * self.question.cluster.gpu.hbm) + launches * form["launch"]
        return np.asarray(seconds * self.factor("quantise", self.recipe.name))


def machine_for(question: Question, keys: Keys) -> Machine:
    """Prices for the keys of a table. Strides follow the rank order tp-cp-ep-dp-pp."""
    network = network_of(question.cluster, 1.0 / question.calibration.factor("network"), question.measured)
    one = np.ones_like(keys.tp)
    return Machine(
        question=question,
        keys=keys,
        tok=tokens(question.job, keys),
        kernels=kernels_of(question.cluster.gpu, question.measured),
        network=network,
        recipe=recipe_for(question.job.precision, question.cluster.gpu),
        tp=network.group(keys.tp, one),
        cp=network.group(keys.cp, keys.tp),
        ep=network.group(keys.ep, keys.etp),
        etp=network.group(keys.etp, one),
    )
