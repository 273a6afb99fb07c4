"""The question that the guide is asked, and the answer it gives."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

from meshwright.cluster.parse import MOST_GPUS
from meshwright.cluster.spec import Cluster
from meshwright.errors import QuestionError
from meshwright.facts import load_json
from meshwright.job.spec import one_of, positive
from meshwright.lang import Say, fill, plain
from meshwright.layout.layout import Layout
from meshwright.model.spec import Model

Network = Literal["nvlink", "infiniband", "ethernet"]
Starts = Literal["yes", "no", "not-asked"]
DEGREES = ("tp", "pp", "vpp", "cp", "ep", "etp")
USUAL_NODE = 8
"""GPUs a node where nobody names the cluster: HGX and DGX nodes."""
LONGEST_SEQUENCE = 10**10
WIDTH = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class GuideQuestion:
    """What is asked. Everything may be left out; the answer is then general.

    model          the model; its parameter counts go into total_params and active_params
    total_params   all parameters [count]
    active_params  parameters that a token visits, for a mixture of experts [count]
    gpus           number of GPUs, or the cluster
    degrees        the degrees that were named, a subset of tp, pp, vpp, cp, ep, etp
    sp             sequence parallelism; None follows tp > 1
    seq_length     tokens a sample
    network        what joins the GPUs; None is taken from the cluster, if there is one
    """

    model: Model | None = None
    total_params: float | None = None
    active_params: float | None = None
    gpus: int | Cluster | None = None
    degrees: Mapping[str, int] = field(default_factory=dict)
    sp: bool | None = None
    seq_length: int | None = None
    network: Network | None = None

    def __post_init__(self) -> None:
        for name, degree in self.degrees.items():
            one_of("degree", name, DEGREES)
            _at_most(f"{name} is", degree, MOST_GPUS)
        layout_of(self.degrees)  # raises for a degree below 1
        for what, value in (("total", self.total_params), ("active", self.active_params)):
            if value is not None and not (math.isfinite(value) and value >= 1):
                raise QuestionError(f"{what} parameters are {value!r}; they must be above 0 (one at least)")
        if self.total_params and self.active_params and self.active_params > self.total_params * 1.001:
            raise QuestionError(
                f"{billions(self.active_params)} active parameters are more than the "
                f"{billions(self.total_params)} in total"
            )
        if self.seq_length is not None:
            positive("sequence length", self.seq_length)
            _at_most("the sequence length is", self.seq_length, LONGEST_SEQUENCE)
        if isinstance(self.gpus, int):
            positive("the number of GPUs", self.gpus)
            _at_most("the number of GPUs is", self.gpus, MOST_GPUS)
        if self.network is not None:
            one_of("network", self.network, get_args(Network))

    @property
    def world(self) -> int | None:
        return self.gpus.world if isinstance(self.gpus, Cluster) else self.gpus

    @property
    def gpus_per_node(self) -> int:
        return self.gpus.gpus_per_node if isinstance(self.gpus, Cluster) else USUAL_NODE

    @property
    def nvlink_domain(self) -> int:
        return self.gpus.nvlink_domain if isinstance(self.gpus, Cluster) else USUAL_NODE

    @property
    def is_moe(self) -> bool | None:
        """Whether experts are involved; None when nothing in the question tells."""
        if self.model is not None:
            return self.model.is_moe
        if self.active_params and self.total_params:
            return self.active_params < 0.95 * self.total_params
        if max(self.degrees.get("ep", 1), self.degrees.get("etp", 1)) > 1:
            return True
        return False if self.total_params else None

    @property
    def model_names(self) -> tuple[str, ...]:
        """Every name of the model."""
        if self.model is None:
            return ()
        extra = (self.model.hugging_face_id,) if self.model.hugging_face_id else ()
        return (self.model.name, *extra, *self.model.aliases)

    @property
    def subject(self) -> str:
        """The model in words."""
        if self.model is not None:
            return self.model.name
        if self.total_params is None:
            return "any model"
        active = f", {billions(self.active_params)} active" if self.active_params and self.is_moe else ""
        return f"a model of {billions(self.total_params)} parameters{active}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    """One part of the answer.

    lines       the answer, one statement a line
    guide_says  what the guide says about it; "" where it is silent
    holds       what holds, where that is more or something else; empty where the guide is simply right
    agrees      False where the guide is wrong or too coarse
    values      the numbers, for programs
    """

    id: str
    title: str
    lines: tuple[str, ...]
    guide_says: str = ""
    holds: tuple[str, ...] = ()
    agrees: bool = True
    source: str = ""
    values: Mapping[str, Any] = field(default_factory=dict)

    def as_dict(self) -> dict[str, Any]:
        """JSON form."""
        return {
            "id": self.id,
            "title": self.title,
            "lines": list(self.lines),
            "guide_says": self.guide_says,
            "holds": list(self.holds),
            "agrees": self.agrees,
            "source": self.source,
            "values": dict(self.values),
        }

    def text(self, width: int = WIDTH, say: Say = plain) -> str:
        """Terminal form: a title, the lines, then the guide's word beside ours.

        say  says the words in the language of the reader
        """
        out = [say(self.title), *(_wrapped(say(line), width) for line in self.lines)]
        if self.guide_says:
            out.append(_wrapped(say(f"The guide says: {self.guide_says}."), width))
        if self.holds:
            head = "What holds:" if self.agrees else "What holds instead, or more exactly:"
            out.append(_wrapped(say(head), width))
            out += [_wrapped(f"  - {say(statement)}", width) for statement in self.holds]
        return "\n".join(out)


@dataclass(frozen=True, slots=True, kw_only=True)
class Advice:
    """The whole answer.

    starts            whether that layout can start, as far as the question tells
    asked             the degrees were named in the question
    layout            the degrees that the formulas were evaluated with
    layout_source     where those come from: asked, or a row of the guide
    nearest_layouts   layouts like the one asked for that can start on those GPUs
    nearest_gpus      GPU counts next to the one asked for on which the layout can start
    """

    subject: str
    asked: bool
    starts: Starts
    layout: Layout
    layout_source: str
    world: int | None
    nearest_layouts: tuple[Layout, ...]
    nearest_gpus: tuple[int, ...]
    sections: tuple[Section, ...]

    def section(self, id: str) -> Section:
        """The section of that id; KeyError when there is none."""
        return next((part for part in self.sections if part.id == id), None) or _missing(id)

    def as_dict(self) -> dict[str, Any]:
        """JSON form."""
        return {
            "subject": self.subject,
            "asked": self.asked,
            "starts": self.starts,
            "layout": degrees_of(self.layout),
            "layout_from": self.layout_source,
            "world": self.world,
            "min_gpus": self.layout.min_gpus,
            "guide_min_gpus": self.layout.guide_min_gpus,
            "wrong_product": self.layout.wrong_product,
            "nearest_layouts": [degrees_of(layout) for layout in self.nearest_layouts],
            "nearest_gpus": list(self.nearest_gpus),
            "sections": [section.as_dict() for section in self.sections],
        }

    def text(self, width: int = WIDTH, say: Say = plain) -> str:
        """Terminal form, sections apart by an empty line."""
        return "\n\n".join(section.text(width, say) for section in self.sections)


def _missing(id: str) -> Section:
    raise KeyError(id)


def layout_of(degrees: Mapping[str, int], sp: bool = False) -> Layout:
    """A layout from the degrees that are named; the others are 1."""
    return Layout(**{name: degrees.get(name, 1) for name in DEGREES}, sp=sp)


def degree_words(layout: Layout) -> str:
    """TP and PP, and what else is above 1.

    >>> degree_words(Layout(pp=4, ep=64))
    'TP1 PP4 EP64'
    """
    degrees = {name: getattr(layout, name) for name in DEGREES}
    shown = [name for name, value in degrees.items() if value > 1 or name in ("tp", "pp")]
    return " ".join(f"{name.upper()}{degrees[name]}" for name in shown)


def degrees_of(layout: Layout) -> dict[str, int | bool]:
    """The degrees that advice is about, as plain values."""
    return {**{name: getattr(layout, name) for name in DEGREES}, "sp": layout.sp}


def billions(count: float) -> str:
    """A parameter count as people say it.

    >>> billions(70.55e9), billions(1e12), billions(5e8)
    ('70.6B', '1000B', '0.5B')
    """
    return f"{float(f'{count / 1e9:.4g}' if count >= 1e11 else f'{count / 1e9:.3g}'):g}B"


def _at_most(what: str, value: int, most: int) -> None:
    if isinstance(value, int) and value > most:
        raise QuestionError(f"{what} more than Meshwright believes; at most {most:,}")


def _wrapped(line: str, width: int) -> str:
    """The line indented and filled; parts of a shell command stay as they are."""
    if line.endswith("\\"):
        return f"  {line}"
    indent = "  " + " " * (len(line) - len(line.lstrip()))
    return fill(line.strip(), width, first=indent, rest=indent + "  ")


def guide() -> Any:
    """The guide as data."""
    return load_json("meshwright.planner.guide", "guide.json")
