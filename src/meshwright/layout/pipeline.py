"""Pipeline layouts: which layers every model chunk holds, and the ways Megatron divides them.

Model chunk k sits on pipeline rank k % pp as its chunk k // pp. A chunk is a tuple of items: "E"
(embedding), "t" (a decoder layer; they are taken in order), "m" (an MTP module), "L" (final norm,
output projection and loss).

Source: megatron/core/transformer/transformer_block.py, get_num_layers_to_build;
transformer_config.py, __post_init__; pipeline_parallel_layer_layout.py.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import accumulate

import numpy as np
from numpy.typing import NDArray

from meshwright.errors import LayoutError, QuestionError
from meshwright.job.spec import Recompute, positive
from meshwright.layout import notation
from meshwright.layout.notation import Chunk
from meshwright.layout.split import SplitCosts, StageLimits, best_split, default_costs
from meshwright.layout.stages import count_blocks, describe_kinds, recompute_code
from meshwright.layout.table import Ints, SplitTable
from meshwright.model.spec import Model


@dataclass(frozen=True, slots=True)
class PipelineLayout:
    """`pp` * `vpp` model chunks, in the order in which a micro-batch passes them."""

    pp: int
    vpp: int
    chunks: tuple[Chunk, ...]

    @classmethod
    def even(cls, num_layers: int, pp: int, vpp: int = 1, mtp: int = 0) -> PipelineLayout:
        """The same number of layers on every chunk, MTP modules on the last.

        >>> PipelineLayout.even(32, pp=4, vpp=2).string()
        'Et*4|(t*4|)*6t*4L'
        """
        _check_degrees(num_layers, pp, vpp)
        _divides(f"{num_layers} layers", num_layers, "pp", pp, HOW_TO_SPLIT_UNEVENLY)
        _divides_into_chunks(num_layers // pp, vpp, "")
        return _from_counts([num_layers // (pp * vpp)] * (pp * vpp), pp, mtp)

    @classmethod
    def first_last(
        cls, num_layers: int, pp: int, vpp: int = 1, first: int | None = None, last: int | None = None,
        mtp: int = 0,
    ) -> PipelineLayout:  # fmt: skip
        """`num_layers_in_first_pipeline_stage` / `num_layers_in_last_pipeline_stage`: the ends are given,
        the ranks between share the rest evenly.

        >>> PipelineLayout.first_last(94, pp=4, last=22).string()
        'Et*24|(t*24|)*2t*22L'
        """
        _check_degrees(num_layers, pp, vpp)
        given = [count for count in (first, last) if count is not None]
        for what, count in (("first", first), ("last", last)):
            if count is not None and count <= 0:
                raise LayoutError(f"the {what} stage is given {count} layers; it needs at least 1")
        left, ranks = num_layers - sum(given), pp - len(given)
        said = f"{num_layers} layers less {' and '.join(map(str, given)) or 'none'} at the ends"
        if left < 0 or ranks < 0 or bool(left) != bool(ranks):
            raise LayoutError(f"{said} leave {left} layers for {ranks} ranks between them (pp {pp})")
        if ranks and left % ranks:
            below = left // ranks * ranks
            raise LayoutError(
                f"{said} leave {left} for the {ranks} ranks between, which do not divide ({left} % {ranks} = "
                f"{left % ranks}); give {left - below} more to the ends, or {below + ranks - left} less"
            )
        middle = left // ranks if ranks else 0
        per_rank = [middle] * pp
        if first is not None:
            per_rank[0] = first
        if last is not None:
            per_rank[-1] = last
        for rank in dict.fromkeys((0, pp // 2, pp - 1)):
            _divides_into_chunks(per_rank[rank], vpp, f" on rank {rank}")
        return _from_counts([count // vpp for count in per_rank] * vpp, pp, mtp)

    @classmethod
    def account(
        cls, num_layers: int, pp: int, vpp: int = 1, embedding: bool = False, loss: bool = False, mtp: int = 0
    ) -> PipelineLayout:
        """`account_for_embedding_in_pipeline_split` / `account_for_loss_in_pipeline_split`: each counts
        as one layer when layers are shared out.

        >>> PipelineLayout.account(126, pp=8, embedding=True, loss=True).string()
        'Et*15|(t*16|)*6t*15L'
        """
        _check_degrees(num_layers, pp, vpp)
        total = num_layers + embedding + loss
        parts = [
            f"{num_layers} layers",
            *(["the embedding"] if embedding else []),
            *(["the loss"] if loss else []),
        ]
        _divides(f"{' + '.join(parts)} = {total} blocks", total, "pp", pp, HOW_TO_SPLIT_UNEVENLY)
        _divides_into_chunks(total // pp, vpp, "")
        counts = [total // (pp * vpp)] * (pp * vpp)
        counts[0] -= embedding
        counts[-1] -= loss
        if min(counts) < 0:
            raise LayoutError(
                "a chunk has too few layers to give up one for the embedding or the loss; use fewer chunks"
            )
        return _from_counts(counts, pp, mtp)

    @classmethod
    def parse(cls, layout: str | Sequence[object], pp: int) -> PipelineLayout:
        """A layout in Megatron's notation, as text or as a list of lists of names.

        >>> PipelineLayout.parse("Et*3|(tt|)*29m|L", pp=16).vpp
        2
        """
        positive("pp", pp)
        chunks = notation.parse_text(layout) if isinstance(layout, str) else notation.parse_list(layout)
        if not chunks or len(chunks) % pp:
            below = len(chunks) // pp * pp
            legal = f"{below} or {below + pp}" if below else f"{pp}"
            raise LayoutError(
                f"the pipeline layout has {len(chunks)} chunks, which is not a multiple of pp {pp}; "
                f"nearest that work: {legal}"
            )
        return cls(pp, len(chunks) // pp, chunks)

    @classmethod
    def hybrid(cls, pattern: str, pp: int) -> PipelineLayout:
        """The layout of a hybrid pattern: its `|` end chunks; without them layers are shared evenly.

        >>> PipelineLayout.hybrid("M-M*|M-M*-/M*", pp=2).string()
        'Et*4|t*5mL'
        """
        positive("pp", pp)
        parts, modules = notation.parse_hybrid(pattern)
        if len(parts) == 1:
            return cls.even(len(parts[0]), pp, mtp=len(modules))
        if len(parts) % pp:
            below = len(parts) // pp * pp
            legal = f"{below} or {below + pp}" if below else f"{pp}"
            raise LayoutError(
                f"the hybrid pattern has {len(parts)} chunks, which is not a multiple of pp {pp}; "
                f"nearest that work: {legal}"
            )
        return _from_counts([len(part) for part in parts], pp, len(modules))

    @classmethod
    def automatic(
        cls, model: Model, pp: int, vpp: int = 1, costs: SplitCosts | None = None,
        limits: StageLimits | None = None, recompute: Recompute | None = None,
    ) -> PipelineLayout | None:  # fmt: skip
        """The split whose slowest rank is fastest within memory; None where there is no legal one.

        costs and limits are per block kind and per rank (see `split`); without costs every decoder
        layer weighs the same and the head weighs what its GEMM does. The layers of a hybrid model are
        shared evenly over stages without chunks, which is all that Megatron can be told of it.
        """
        if model.is_hybrid:
            fits = vpp == 1 and model.num_layers % pp == 0
            return cls.even(model.num_layers, pp, 1, len(model.mtp)) if fits else None
        if costs is None:
            costs = default_costs(model)
        split = best_split(model, pp, vpp, costs, limits, recompute or Recompute())
        if split is None:
            return None
        return _from_counts(list(split.layers), pp, len(model.mtp), split.mtp_apart)

    @property
    def num_layers(self) -> int:
        return sum(chunk.count("t") for chunk in self.chunks)

    @property
    def mtp(self) -> int:
        """Number of multi-token-prediction modules."""
        return sum(chunk.count("m") for chunk in self.chunks)

    @property
    def layers_per_chunk(self) -> tuple[int, ...]:
        """Decoder layers of each model chunk, [pp * vpp]."""
        return tuple(chunk.count("t") for chunk in self.chunks)

    @property
    def layers_per_rank(self) -> tuple[int, ...]:
        """Decoder layers of each pipeline rank, [pp]."""
        counts = self.layers_per_chunk
        return tuple(sum(counts[rank :: self.pp]) for rank in range(self.pp))

    @property
    def layer_ranges(self) -> tuple[tuple[int, int], ...]:
        """First decoder layer and the one after the last, of each model chunk."""
        stops = list(accumulate(self.layers_per_chunk))
        return tuple((stop - count, stop) for stop, count in zip(stops, self.layers_per_chunk, strict=True))

    def chunk(self, rank: int, number: int = 0) -> Chunk:
        """What chunk `number` of pipeline rank `rank` holds."""
        return self.chunks[number * self.pp + rank]

    def string(self) -> str:
        """The layout in Megatron's notation."""
        return notation.write_text(self.chunks)

    def as_list(self) -> list[list[str]]:
        """The layout as a list of lists of layer names."""
        return notation.write_list(self.chunks)

    def draw(self, together: bool = False) -> list[str]:
        """The layout as lines of a table; `together` joins neighbouring ranks that hold the same."""
        return notation.draw(self.pp, self.chunks, together)

    def counts(self, model: Model, recompute: Recompute | None = None) -> NDArray[np.int16]:
        """Blocks of each kind (see `stages.block_kinds`), shape [pp, vpp, kinds]."""
        flat = count_blocks(model, self.chunks, recompute or Recompute())
        return flat.reshape(self.vpp, self.pp, -1).swapaxes(0, 1)

    def validate(self, num_layers: int, mtp: int = 0) -> None:
        """Raise LayoutError where Megatron refuses this layout for a model of that depth."""
        items = [item for chunk in self.chunks for item in chunk]
        if not items or items[0] != "E" or items.count("E") != 1:
            raise LayoutError(_ends_message("E (embedding)", "first", items, "E"))
        if items[-1] != "L" or items.count("L") != 1:
            raise LayoutError(_ends_message("L (loss)", "last", items, "L"))
        _same_number("decoder layers (t)", items.count("t"), num_layers)
        _same_number("MTP modules (m)", items.count("m"), mtp)
        if mtp:
            self._validate_mtp(items)

    def _validate_mtp(self, items: list[str]) -> None:
        if "t" in items[items.index("m") :]:
            raise LayoutError(
                "the pipeline layout has a decoder layer (t) after an MTP module (m); m comes after t"
            )
        holding = [number for number, chunk in enumerate(self.chunks) if "m" in chunk]
        early = [number for number in holding if number // self.pp < self.vpp - 1]
        if early:
            rank, number = early[0] % self.pp, early[0] // self.pp
            raise LayoutError(
                f"the MTP module sits on chunk {number} of rank {rank}; it belongs on the last chunk of its "
                f"rank ({self.vpp - 1})"
            )
        if len(holding) > 1:
            raise LayoutError(f"the {self.mtp} MTP modules sit on {len(holding)} chunks; they belong on one")

    @property
    def mtp_apart(self) -> bool:
        """MTP modules are on another rank than the loss: that rank holds embedding and head as well."""
        return any(
            "m" in chunk and number % self.pp != self.pp - 1 for number, chunk in enumerate(self.chunks)
        )


HOW_TO_SPLIT_UNEVENLY = "or give first/last stage layers or a layout string"


@lru_cache(maxsize=4096)
def default_pipeline(model: Model, pp: int, vpp: int = 1) -> PipelineLayout | None:
    """Even where Megatron divides the layers evenly (MTP on the last chunk), else the automatic layout.

    None where there is no legal split, for example fewer layers than chunks.
    """
    if pp == 1 and vpp > 1:
        return None
    if model.num_layers % (pp * vpp) == 0 and not model.is_hybrid:
        return PipelineLayout.even(model.num_layers, pp, vpp, len(model.mtp))
    return PipelineLayout.automatic(model, pp, vpp)


WantedSplit = tuple[int, int, PipelineLayout | None, Recompute]
"""pp, vpp, the layout (None: the default one), recompute."""


def split_table(model: Model, wanted: Sequence[WantedSplit]) -> tuple[SplitTable, Ints]:
    """The distinct splits among those wanted, and for each wanted one its row in the table.

    LayoutError where a default layout is asked for and there is none.
    """
    rows: dict[object, int] = {}
    seen: dict[object, int] = {}
    codes = np.empty(len(wanted), dtype=np.int64)
    found: list[tuple[PipelineLayout, NDArray[np.int16]]] = []
    for index, (pp, vpp, layout, recompute) in enumerate(wanted):
        asked = (pp, vpp, layout, recompute_code(recompute))
        row = seen.get(asked)
        if row is None:
            chosen = layout if layout is not None else default_pipeline(model, pp, vpp)
            if chosen is None:
                raise LayoutError(
                    f"{model.num_layers} layers of {model.name} have no split over pp {pp} x vpp {vpp}"
                )
            if (chosen.pp, chosen.vpp) != (pp, vpp):
                raise LayoutError(
                    f"the pipeline layout {chosen.string()!r} is for pp {chosen.pp} x vpp {chosen.vpp}, "
                    f"not for pp {pp} x vpp {vpp}"
                )
            counts = chosen.counts(model, recompute)
            row = rows.setdefault((pp, vpp, chosen.chunks, counts.tobytes()), len(found))
            if row == len(found):
                found.append((chosen, counts))
            seen[asked] = row
        codes[index] = row
    return _table(model, found), codes


def _table(model: Model, found: list[tuple[PipelineLayout, NDArray[np.int16]]]) -> SplitTable:
    kinds = tuple(kind.name for kind in describe_kinds(model))
    stages = max((layout.pp for layout, _ in found), default=1)
    chunks = max((layout.vpp for layout, _ in found), default=1)
    counts = np.zeros((len(found), stages, chunks, len(kinds)), dtype=np.int16)
    mask = np.zeros((len(found), stages), dtype=np.bool_)
    for row, (layout, own) in enumerate(found):
        counts[row, : layout.pp, : layout.vpp] = own
        mask[row, : layout.pp] = True
    written = {layout: layout.string() for layout in {layout for layout, _ in found}}
    layouts = tuple(written[layout] for layout, _ in found)
    return SplitTable(counts=counts, kinds=kinds, stage_mask=mask, layouts=layouts)


def _from_counts(counts: list[int], pp: int, mtp: int, apart: bool = False) -> PipelineLayout:
    """Decoder layers of each chunk, embedding first, loss last after the MTP modules (or a chunk before)."""
    chunks = [["t"] * count for count in counts]
    chunks[0].insert(0, "E")
    chunks[-2 if apart else -1].extend("m" * mtp)
    chunks[-1].append("L")
    return PipelineLayout(pp, len(counts) // pp, tuple(tuple(chunk) for chunk in chunks))


def _check_degrees(num_layers: int, pp: int, vpp: int) -> None:
    positive("the number of layers", num_layers)
    positive("pp", pp)
    positive("vpp", vpp)
    if vpp > 1 and pp == 1:
        raise LayoutError(f"vpp {vpp} needs pp of at least 2, and pp is 1; use vpp 1 or more pipeline stages")
    for what, count in (("layers", num_layers), ("chunks (pp x vpp)", pp * vpp)):
        if count > notation.MOST_ITEMS:
            raise QuestionError(f"{count} {what} are more than the {notation.MOST_ITEMS} that are read")


def divisors_around(number: int, wanted: int) -> tuple[int, ...]:
    """The divisors of `number` next below and above `wanted`.

    >>> divisors_around(20, 12)
    (10, 20)
    """
    divisors = [d for d in range(1, number + 1) if number % d == 0]
    below = [d for d in divisors if d <= wanted][-1:]
    above = [d for d in divisors if d > wanted][:1]
    return tuple(below + above)


def _divides(what: str, number: int, name: str, degree: int, otherwise: str) -> None:
    if number % degree:
        legal = " or ".join(map(str, divisors_around(number, degree)))
        raise LayoutError(
            f"{what} do not divide over {name} {degree} ({number} % {degree} = {number % degree}); "
            f"nearest {name} that divide: {legal}; {otherwise}"
        )


def _divides_into_chunks(per_rank: int, vpp: int, where: str) -> None:
    if per_rank % vpp:
        legal = " or ".join(map(str, divisors_around(per_rank, vpp)))
        raise LayoutError(
            f"{per_rank} layers per stage{where} do not divide into {vpp} chunks ({per_rank} % {vpp} = "
            f"{per_rank % vpp}); nearest VPP that divide: {legal}"
        )


def _ends_message(what: str, where: str, items: list[str], letter: str) -> str:
    times = items.count(letter)
    if times != 1:
        return f"the pipeline layout has {what} {times} times; it must be there once, and {where}"
    return f"the pipeline layout must have {what} {where}"


def _same_number(what: str, found: int, wanted: int) -> None:
    if found != wanted:
        change = f"add {wanted - found}" if found < wanted else f"remove {found - wanted}"
        raise LayoutError(f"the pipeline layout has {found} {what} and the model has {wanted}; {change}")
