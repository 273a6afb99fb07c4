"""How training is divided: the degrees of one layout.

Vocabulary (Megatron's own; every other room uses these short names):

    tp   tensor_model_parallel_size            pp   pipeline_model_parallel_size
    vpp  virtual_pipeline_model_parallel_size  cp   context_parallel_size
    ep   expert_model_parallel_size            etp  expert_tensor_parallel_size
    mbs  micro_batch_size                      sp   sequence_parallel
    dp   data parallel size = world / (tp*pp*cp), of the dense (attention) grid
    edp  expert data parallel size = world / (pp*ep*etp), of the expert grid
    gbs  global_batch_size                     M    micro-batches a step = gbs / (mbs*dp)
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from meshwright.errors import LayoutError, QuestionError
from meshwright.job.spec import shown

LARGEST_DEGREE = 10**6
DEGREES = ("tp", "pp", "vpp", "cp", "ep", "etp", "mbs")


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """Degrees of one parallel layout; `dp` and `edp` follow from the number of GPUs."""

    tp: int = 1
    pp: int = 1
    vpp: int = 1
    cp: int = 1
    ep: int = 1
    etp: int = 1
    mbs: int = 1
    sp: bool = False

    def __post_init__(self) -> None:
        for name in DEGREES:
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int) or value < 1:
                raise QuestionError(f"{name} is {shown(value)}; a degree is a whole number of at least 1")
            if value > LARGEST_DEGREE:
                raise QuestionError(f"{name} is {shown(value)}; no degree is above {LARGEST_DEGREE:,}")

    @property
    def dense_grid(self) -> int:
        """GPUs a pipeline stage of the dense path needs at dp=1: tp*cp."""
        return self.tp * self.cp

    @property
    def expert_grid(self) -> int:
        """GPUs a pipeline stage of the expert path needs at edp=1: ep*etp."""
        return self.ep * self.etp

    @property
    def min_gpus(self) -> int:
        """Fewest GPUs that both grids divide: pp*lcm(tp*cp, ep*etp).

        Source: megatron/core/parallel_state.py, initialize_model_parallel (both products divide the world).
        """
        return self.pp * math.lcm(self.dense_grid, self.expert_grid)

    @property
    def guide_min_gpus(self) -> int:
        """The guide's formula pp*max(tp*cp, ep*etp): right where one grid divides the other."""
        return self.pp * max(self.dense_grid, self.expert_grid)

    @property
    def wrong_product(self) -> int:
        """pp*tp*cp*ep*etp, the product the guide warns of: it counts the GPUs of a stage twice."""
        return self.pp * self.dense_grid * self.expert_grid

    def check_world(self, world: int) -> None:
        """Raise LayoutError unless `world` GPUs can be divided this way."""
        step = self.min_gpus
        if world % step:
            below = world // step * step
            legal = f"{below} or {below + step}" if below else f"{step}"
            raise LayoutError(
                f"{world} GPUs are not a multiple of {step} = pp {self.pp} x "
                f"lcm(tp {self.tp} x cp {self.cp}, ep {self.ep} x etp {self.etp}); nearest that work: {legal}"
            )

    def dp(self, world: int) -> int:
        """Data parallel size of the dense grid: world / (tp*pp*cp)."""
        self.check_world(world)
        return world // (self.pp * self.dense_grid)

    def edp(self, world: int) -> int:
        """Data parallel size of the expert grid: world / (pp*ep*etp)."""
        self.check_world(world)
        return world // (self.pp * self.expert_grid)

    def num_microbatches(self, world: int, global_batch: int) -> int:
        """Micro-batches a step: gbs / (mbs*dp); LayoutError when that is not whole."""
        step = self.mbs * self.dp(world)
        if global_batch % step:
            below = global_batch // step * step
            legal = f"{below} or {below + step}" if below else f"{step}"
            raise LayoutError(
                f"a global batch of {global_batch} is not a multiple of mbs {self.mbs} x dp {self.dp(world)} "
                f"= {step}; nearest that work: {legal}"
            )
        return global_batch // step

    def __str__(self) -> str:
        """The degrees that are not 1, and the micro-batch.

        >>> str(Layout(tp=2, pp=4))
        'TP2 PP4 MBS1'
        """
        above = [name for name in DEGREES if name == "mbs" or getattr(self, name) > 1]
        return " ".join(f"{name.upper()}{getattr(self, name)}" for name in above)
