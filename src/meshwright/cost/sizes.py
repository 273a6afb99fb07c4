"""What the sizes of tensors depend on: tokens of a rank, and the flags that change what is saved."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from meshwright.cluster.spec import Gpu
from meshwright.cost.keys import Keys
from meshwright.cost.precision import Recipe
from meshwright.job.spec import Job
from meshwright.layout.table import Bools, Floats
from meshwright.model.spec import Model

BF16 = 2.0
FP32 = 4.0
BOOL = 1.0
FUSED_ARCHITECTURES = ("Hopper", "Blackwell", "Blackwell Ultra", "Rubin")
"""Where Transformer Engine prefers cuDNN's attention to flash attention (utils.get_attention_backend)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tokens:
    """Token counts of each key. [Q]

    full     a rank's share of the sequence, all of it: mbs*seq/cp
    sharded  what it holds between the TP regions: full/tp with sequence parallelism
    """

    full: Floats
    sharded: Floats


def tokens(job: Job, keys: Keys) -> Tokens:
    full = keys.mbs * job.seq_length / keys.cp
    return Tokens(full=full, sharded=np.where(keys.sp, full / keys.tp, full))


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizes:
    """One question's layer keys with everything that the size of a saved tensor depends on.

    full, sharded   tokens of a rank [Q]; symbols F and S below
    gathered        tokens that TP regions gather beside the sharded ones (0 without SP) [Q]
    flash, unfused  attention backend [Q]; neither: cuDNN's fused attention
    own_wgrad       1 where weight gradients are tensors of their own, else 0 [Q]
    """

    model: Model
    job: Job
    recipe: Recipe
    keys: Keys
    full: Floats
    sharded: Floats
    gathered: Floats
    flash: Bools
    unfused: Bools
    own_wgrad: Floats

    @property
    def saved(self) -> float:
        """Bytes that a linear layer keeps of an element of its input."""
        return self.recipe.saved_input

    def of_share(self, share: float) -> Sizes:
        """The same keys where only a share of the job's tokens passes."""
        if share == 1.0:
            return self
        return replace(
            self,
            job=replace(self.job, seq_length=max(round(self.job.seq_length * share), 1)),
            full=self.full * share,
            sharded=self.sharded * share,
            gathered=self.gathered * share,
        )

    @property
    def zeros(self) -> Floats:
        return np.zeros(len(self.keys))


def sizes_of(model: Model, job: Job, recipe: Recipe, keys: Keys, gpu: Gpu) -> Sizes:
    toks = tokens(job, keys)
    fused = gpu.architecture in FUSED_ARCHITECTURES
    # cuDNN's backward pass has no deterministic form on Blackwell
    fused_deterministic = gpu.architecture == "Hopper"
    local = keys.flag(lambda e: e.transformer_impl == "local")
    unfused = keys.flag(lambda e: e.attention_backend == "unfused") | local
    flash = keys.flag(
        lambda e: (
            e.attention_backend == "flash"
            or (e.attention_backend == "auto" and not (fused_deterministic if e.deterministic else fused))
        )
    )
    return Sizes(
        model=model,
        job=job,
        recipe=recipe,
        keys=keys,
        full=toks.full,
        sharded=toks.sharded,
        gathered=np.where(keys.sp, toks.full, 0.0),
        flash=flash & ~unfused,
        unfused=unfused,
        own_wgrad=np.where(keys.flag(lambda e: e.gradient_accumulation_fusion), 0.0, 1.0),
    )
