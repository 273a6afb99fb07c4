"""Draw the pictures of the documentation with the product itself.

    python tools/draw_docs.py          write docs/pictures/
    python tools/draw_docs.py --check  exit 1 where the pictures are other ones, or built otherwise

Times and memory move when the cost model learns; `outline` keeps what must not move: titles, labels
without digits, and the kinds of elements.
"""

from __future__ import annotations

import re
import sys
import xml.etree.ElementTree as ET
from collections.abc import Callable, Mapping
from pathlib import Path

import meshwright as mw
from meshwright.job.spec import Recompute
from meshwright.layout.layout import Layout
from meshwright.layout.ranks import RankGrid
from meshwright.report.svg.draw import Picture, legend, picture, rect, text
from meshwright.report.svg.grid import grid_picture

FOLDER = Path(__file__).parent.parent / "docs" / "pictures"
HALF = 380.0
"""Width of pictures that stand side by side [px]."""
WIDE = 720.0
NUMBER = r"[\d.,]+( (ms|s|[KMG]iB|%))?"
"""A figure with its unit, which moves with it."""
DENSE, MOE = "llama-3-8b", "qwen3-30b-a3b"


def grid(group: str, world: int = 16, width: float = WIDE, **degrees: int) -> Picture:
    """Ranks of a small cluster of 8-GPU nodes, coloured by one kind of group."""
    layout = Layout(**degrees, sp=degrees.get("tp", 1) > 1)
    ranks = RankGrid(layout=layout, world=world, gpus_per_node=8, nvlink_domain=8)
    return grid_picture(ranks, group, width)


def drawn(name: str, model: str, gpus: str, width: float = WIDE, **said: object) -> Picture:
    """One picture of the estimate of one layout."""
    answer = mw.estimate(model, gpus, mw.Options(**said))  # type: ignore[arg-type]
    (one,) = mw.pictures(answer, width=width, names=[name])
    return one


def sequence_cut(cp: int = 4, width: float = WIDE) -> Picture:
    """The 2*CP pieces of a sequence and the rank that holds each: one from either end."""
    wide, tall, left = (width - 20) / (2 * cp), 34.0, 10.0
    owners = [*range(cp), *reversed(range(cp))]
    parts = []
    for piece, owner in enumerate(owners):
        x = left + piece * wide
        parts.append(rect(x, 24, wide - 3, tall, f"c{owner}", f"piece {piece}: CP rank {owner}"))
        middle = x + (wide - 3) / 2
        parts.append(text(middle, 24 + tall / 2 + 4, f"rank {owner}", anchor="middle", class_="on"))
    parts.append(text(left, 16, "first token", class_="soft small"))
    parts.append(text(width - 10, 16, "last token", anchor="end", class_="soft small"))
    items = [(f"c{rank}", f"CP rank {rank}") for rank in range(cp)]
    keys, height = legend(items, left, 24 + tall + 12, width)
    words = (
        f"A sequence cut into {2 * cp} pieces for CP {cp}. Rank i holds piece i and piece {2 * cp - 1} - i, "
        "so that every rank has an early piece with little to attend to and a late one with much."
    )
    return picture("cut", "Who holds which tokens", words, width, 24 + tall + 16 + height, [*parts, keys])


LLAMA: Mapping[str, object] = {"seq_length": 8192, "global_batch": 128}
"""Two nodes and a step of about a million tokens, used wherever nothing else is said."""
STAGES: Mapping[str, object] = {"pp": 4, "seq_length": 8192, "global_batch": 32}
"""Eight micro-batches on four stages: few enough to see every pass."""


PLAIN: Mapping[str, object] = {"distributed_optimizer": True, "fsdp": False}
"""Flags that would otherwise be chosen so that the layout fits."""


def memory(
    width: float = HALF, gpus: str = "16xH100", flags: Mapping[str, object] | None = None, **said: object
) -> Picture:
    asked = {**LLAMA, "recompute": Recompute(), **said, "execution": {**PLAIN, **(flags or {})}}
    return drawn("memory", DENSE, gpus, width, **asked)


def step(width: float = WIDE, model: str = DENSE, gpus: str = "16xH100", **said: object) -> Picture:
    return drawn("step", model, gpus, width, **{**LLAMA, **said})


PICTURES: Mapping[str, Callable[[], Picture]] = {
    "dp-grid": lambda: grid("dp", tp=2),
    "dp-memory-whole": lambda: memory(tp=4, flags={"distributed_optimizer": False}),
    "dp-memory-sharded": lambda: memory(tp=4),
    "tp-grid": lambda: grid("tp", tp=4),
    "tp-step-inside": lambda: step(model="llama-3-70b", gpus="64xH100", tp=8, pp=4),
    "tp-step-across": lambda: step(model="llama-3-70b", gpus="64xH100", tp=16, pp=4),
    "sp-memory-off": lambda: memory(tp=4, sp=False),
    "sp-memory-on": lambda: memory(tp=4, sp=True),
    "pp-grid": lambda: grid("pp", tp=4, pp=2),
    "pp-layers": lambda: drawn("pipeline", DENSE, "16xH100", **{**STAGES, "vpp": 2}),
    "pp-plain": lambda: drawn("timeline", DENSE, "16xH100", **STAGES),
    "pp-interleaved": lambda: drawn("timeline", DENSE, "16xH100", **{**STAGES, "vpp": 2}),
    "pp-memory-over": lambda: drawn("memory-over", DENSE, "16xH100", **STAGES),
    "cp-grid": lambda: grid("cp", tp=2, cp=4),
    "cp-cut": sequence_cut,
    "cp-memory-one": lambda: memory(tp=2, seq_length=32768, global_batch=32),
    "cp-memory-four": lambda: memory(tp=2, cp=4, seq_length=32768, global_batch=32),
    "ep-grid-dense": lambda: grid("tp", width=520.0, tp=2, pp=2, ep=8),
    "ep-grid-experts": lambda: grid("ep", width=520.0, tp=2, pp=2, ep=8),
    "ep-grid-etp": lambda: grid("etp", world=8, tp=2, ep=4, etp=2),
    "ep-step": lambda: step(model=MOE, gpus="16xH100", ep=8, seq_length=4096, global_batch=512),
    "fsdp-memory-off": lambda: memory(gpus="32xH100"),
    "fsdp-memory-on": lambda: memory(gpus="32xH100", flags={"fsdp": True}),
    "recompute-memory-none": lambda: memory(tp=2),
    "recompute-memory-full": lambda: memory(tp=2, recompute=Recompute(granularity="full")),
    "recompute-step": lambda: step(tp=2, recompute=Recompute(granularity="full")),
    "overlap-step-off": lambda: step(tp=4, execution={"overlaps": frozenset()}),
    "overlap-step-on": lambda: step(tp=4, execution={"overlaps": frozenset({"dp", "tp"})}),
}


def outline(svg: str) -> list[str]:
    """Kinds of elements, and labels with every number written as 0; repeats count once."""
    found: dict[str, None] = {}
    for one in ET.fromstring(svg).iter():
        tag = one.tag.rsplit("}", 1)[-1]
        if tag == "style":
            continue
        words = re.sub(NUMBER, "0", one.text or "") if tag in ("title", "text") else ""
        found[f"{tag} {words}".strip()] = None
    return sorted(found)


def main() -> int:
    wanted = {f"{name}.svg": draw().standalone() for name, draw in PICTURES.items()}
    if "--check" in sys.argv:
        there = {path.name: path.read_text(encoding="utf-8") for path in FOLDER.glob("*.svg")}
        return int(
            there.keys() != wanted.keys()
            or any(outline(there[name]) != outline(svg) for name, svg in wanted.items())
        )
    FOLDER.mkdir(parents=True, exist_ok=True)
    for left in {path.name for path in FOLDER.glob("*.svg")} - wanted.keys():
        (FOLDER / left).unlink()
    for name, svg in wanted.items():
        (FOLDER / name).write_text(svg, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
