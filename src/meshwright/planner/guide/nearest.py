"""The layouts nearest to one that cannot start, and the nearest GPU counts."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

from meshwright.layout.layout import Layout
from meshwright.layout.rules.numbers import divisors
from meshwright.model.spec import Attention, LinearAttention, Mamba2, Mixer, Mla, Model

REACH_DOWN = 16
REACH_UP = 4
"""How far from the asked degree the search looks: a sixteenth of it to four times it."""

AXES = ("tp", "pp", "cp", "ep", "etp")


def nearest_layouts(
    asked: Layout,
    world: int,
    model: Model | None = None,
    seq_length: int | None = None,
    *,
    shipped: Collection[Layout] = (),
    most_tp: int | None = None,
    moe: bool | None = None,
    count: int = 5,
) -> tuple[Layout, ...]:
    """Layouts that can start on `world` GPUs, nearest to the asked one first.

    Distance is the number of doublings between the degrees, summed; among equals the one that spreads
    the change wins. Layouts that ship as recipes of the model (`shipped`) come before all others.
    most_tp bounds TP where it must stay inside an NVLink domain; moe=False keeps EP and ETP at 1.
    Both grids divide the world: world % (pp*tp*cp) == 0 and world % (pp*ep*etp) == 0.
    """
    bounds = _Bounds(world=world, model=model, seq_length=seq_length, most_tp=most_tp, moe=moe)
    values = {name: _choices(name, getattr(asked, name), bounds) for name in AXES}
    found = [
        Layout(tp=tp, pp=pp, cp=cp, ep=ep, etp=etp)
        for pp in values["pp"]
        for tp, cp in _best_pairs(("tp", "cp"), values, asked, world // pp, count)
        for ep, etp in _best_pairs(("ep", "etp"), values, asked, world // pp, count)
    ]
    ships = [each for each in shipped if world % each.min_gpus == 0 and _within(each, values)]
    found.sort(key=lambda each: (*_distance(each, asked), each.tp))
    ships.sort(key=lambda each: _distance(each, asked))
    return tuple(_finished(each, asked) for each in dict.fromkeys((*ships, *found)))[:count]


def _best_pairs(
    names: tuple[str, str], values: dict[str, list[int]], asked: Layout, per_stage: int, count: int
) -> list[tuple[int, int]]:
    """The `count` nearest pairs whose product divides the GPUs of a stage.

    The change of a layout is the sum over its degrees, so its best pairs are enough to find the best sums.
    """
    first, second = names
    wanted = [getattr(asked, name) for name in names]
    pairs = [(a, b) for a in values[first] for b in values[second] if per_stage % (a * b) == 0]
    pairs.sort(key=lambda pair: (*_change(pair, wanted), pair))
    return pairs[:count]


def _distance(layout: Layout, asked: Layout) -> tuple[float, float]:
    """How far a layout is from the asked one."""
    return _change(*([getattr(each, name) for name in AXES] for each in (layout, asked)))


def _change(degrees: Sequence[int], asked: Sequence[int]) -> tuple[float, float]:
    """Doublings between degrees, and the sum of their squares."""
    steps = [abs(math.log2(degree / wanted)) for degree, wanted in zip(degrees, asked, strict=True)]
    return round(sum(steps), 6), round(sum(step**2 for step in steps), 6)


def _within(layout: Layout, values: dict[str, list[int]]) -> bool:
    return all(getattr(layout, name) in values[name] for name in AXES)


def heads_allow(model: Model, tp: int) -> bool:
    """Heads divide over TP; KV heads of softmax attention may be replicated evenly instead.

    Source: megatron/core/transformer/transformer_config.py, __post_init__; ssm/mamba_mixer.py.
    """
    return all(_mixer_allows(kind.mixer, tp) for kind in model.kinds)


def _mixer_allows(mixer: Mixer | None, tp: int) -> bool:
    match mixer:
        case Attention(heads=heads, kv_heads=kv):
            return heads % tp == 0 and (kv % tp == 0 or tp % kv == 0)
        case Mla(heads=heads):
            return heads % tp == 0
        case LinearAttention(k_heads=first, v_heads=second) | Mamba2(heads=first, groups=second):
            return first % tp == 0 and second % tp == 0
        case _:
            return True


@dataclass(frozen=True, slots=True, kw_only=True)
class _Bounds:
    """What a degree must respect."""

    world: int
    model: Model | None
    seq_length: int | None
    most_tp: int | None
    moe: bool | None

    def allow(self, name: str, degree: int) -> bool:
        """Whether this degree is legal by itself."""
        model = self.model
        match name:
            case "tp":
                return degree <= (self.most_tp or degree) and (model is None or heads_allow(model, degree))
            case "pp":
                return model is None or degree <= model.num_layers
            case "cp":
                return self.seq_length is None or self.seq_length % (2 * degree) == 0
            case "ep":
                return self.moe is not False and (model is None or model.num_experts % degree == 0)
            case _:
                return self.moe is not False


def _choices(name: str, asked: int, bounds: _Bounds) -> list[int]:
    """Legal values of one degree that are not too far from the asked one; 1 is always there."""
    near = [d for d in divisors(bounds.world) if asked / REACH_DOWN <= d <= asked * REACH_UP]
    if name == "etp":
        near = [d for d in near if d == asked]
    return sorted({1, *(d for d in near if bounds.allow(name, d))})


def _finished(layout: Layout, asked: Layout) -> Layout:
    """With SP as TP asks for it, and the asked VPP where the pipeline is as deep as asked."""
    return replace(layout, sp=layout.tp > 1, vpp=asked.vpp if layout.pp == asked.pp else 1)
