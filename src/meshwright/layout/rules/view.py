"""What rules read: one mapping of options in Megatron's own names, with the degrees beside it.

A value is an int, a string, a list, ... or, for the degrees of a table of layouts, an array [N].
What nobody said and no framework fills in is unknown: reading it raises `Undecided`, and the rule
that asked neither fires nor passes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import numpy as np

if TYPE_CHECKING:
    from meshwright.cluster.spec import Cluster
    from meshwright.job.spec import Execution, Framework, Job
    from meshwright.layout.layout import Layout
    from meshwright.layout.rules.rule import Rule
    from meshwright.model.spec import Model


class Undecided(Exception):  # noqa: N818 - an answer, not a fault
    """A value that a rule needs is not known."""

    def __init__(self, option: str) -> None:
        super().__init__(option)
        self.option = option


class _Unknown:
    def __repr__(self) -> str:
        return "UNKNOWN"


UNKNOWN: Final = _Unknown()
"""Stands for a value that exists but cannot be read (a shell variable nobody set)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fill:
    """A value that nobody gave and the framework fills in."""

    option: str
    value: Any
    source: str


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """One layout (or a table of them) as rules see it.

    options    effective values, by canonical name: what was said, then what the framework fills in
    said       what was said, before the framework changed or filled anything
    code_date  date of the framework's code (from its version), ISO; rules since then do not bind
    fills      what the framework filled in
    lines      source line of an option, for findings
    """

    options: Mapping[str, Any]
    said: Mapping[str, Any] = field(default_factory=dict)
    framework: Framework = "megatron-core"
    code_date: str = "9999-12-31"
    env: Mapping[str, str] | None = None
    model: Model | None = None
    cluster: Cluster | None = None
    fills: tuple[Fill, ...] = ()
    lines: Mapping[str, int] = field(default_factory=dict)

    @classmethod
    def of(
        cls,
        options: Mapping[str, Any] | None = None,
        *,
        framework: Framework = "megatron-core",
        version: str | None = None,
        release: str | None = None,
        layout: Layout | None = None,
        model: Model | None = None,
        cluster: Cluster | None = None,
        job: Job | None = None,
        execution: Execution | None = None,
        env: Mapping[str, str] | None = None,
        memory: float | None = None,
        lines: Mapping[str, int] | None = None,
    ) -> View:
        """A view of what is known; `options` win over the model, job and execution given beside them.

        options  canonical Megatron names, their command-line spellings, or the short names
                 (`tp`, `pp`, `world`, ...); `UNKNOWN` marks a value that could not be read
        memory   estimated peak over usable memory, where a caller has it (`memory_ratio`)
        env      environment variables; None when nothing is known about the environment
        """
        from meshwright.layout.rules import effective, sources, versions

        said = sources.canonical(options or {})
        if memory is not None:
            said["memory_ratio"] = memory
        base = sources.collect(layout=layout, model=model, cluster=cluster, job=job, execution=execution)
        date = versions.code_date(framework, version, release)
        values, fills = effective.effective({**base, **said}, framework, date)
        return cls(
            options=values,
            said={**base, **said},
            framework=framework,
            code_date=date,
            env=env,
            model=model,
            cluster=cluster,
            fills=fills,
            lines=lines or {},
        )

    def value(self, name: str) -> Any:
        """An effective value; raises Undecided when it is not known."""
        if name in _DERIVED:
            return getattr(self, name)
        found = self.options.get(name, UNKNOWN)
        if found is UNKNOWN:
            raise Undecided(name)
        return found

    __getitem__ = value

    def get(self, name: str, default: Any = None) -> Any:
        """An effective value, or `default` when nobody gave or filled it in (UNKNOWN still raises)."""
        found = self.options.get(name, default)
        if found is UNKNOWN:
            raise Undecided(name)
        return found

    def on(self, name: str) -> bool:
        """Whether a flag is set (unset counts as off)."""
        return bool(self.get(name, False))

    def gave(self, name: str) -> bool:
        """Whether the user (or the model, job, ...) said something else than None."""
        return self.said.get(name) is not None

    def variable(self, name: str) -> str | None:
        """An environment variable, None when it is known to be unset; Undecided when nothing is known."""
        if self.env is None:
            raise Undecided(name)
        found: Any = self.env.get(name)
        if found is UNKNOWN:
            raise Undecided(name)
        return None if found is None else str(found)

    def release(self, package: str) -> tuple[int, ...]:
        """Version of a package beside Megatron (`te_version`, `torch_version`) as numbers."""
        from meshwright.layout.rules.versions import parse

        return parse(str(self.value(package)))

    @property
    def sm(self) -> int:
        """Major compute capability of the GPU: 9 for Hopper, 10 for Blackwell."""
        capability = self.get("compute_capability")
        if capability is not None:
            return int(str(capability).split(".")[0])
        majors = {"volta": 7, "turing": 7, "ampere": 8, "ada": 8, "hopper": 9, "blackwell": 10, "rubin": 10}
        words = str(self.value("gpu_architecture")).lower().split()
        found = majors.get(words[0]) if words else None
        if found is None:
            raise Undecided("compute_capability")
        return found

    def listed(self, name: str) -> tuple[str, ...]:
        """A list option as words: a list, or text with commas or spaces."""
        found = self.get(name)
        if found is None:
            return ()
        words = found.replace(",", " ").split() if isinstance(found, str) else found
        return tuple(str(word) for word in words)

    def line_of(self, rule: Rule) -> int | None:
        """Line of the option in which a rule's two examples differ, where lines are known."""
        from meshwright.layout.rules.sources import canonical

        if not self.lines:
            return None
        breaks, passes = canonical(rule.breaks), canonical(rule.passes)
        names = sorted(breaks, key=lambda name: breaks[name] == passes.get(name))
        return next((self.lines[name] for name in names if name in self.lines), None)

    # Degrees: ints, or arrays [N] when the view is of a table.

    @property
    def tp(self) -> Any:
        return self.value("tensor_model_parallel_size")

    @property
    def pp(self) -> Any:
        return self.value("pipeline_model_parallel_size")

    @property
    def vpp(self) -> Any:
        """Model chunks a rank; 1 when interleaving is off."""
        found = self.get("virtual_pipeline_model_parallel_size")
        return 1 if found is None else found

    @property
    def interleaved(self) -> Any:
        """Whether interleaving is asked for; Megatron treats a virtual size that is set as a wish, even 1."""
        found = self.get("virtual_pipeline_model_parallel_size")
        if found is None or np.ndim(found) or self.framework != "megatron-core":
            return np.greater(self.vpp, 1)
        return found > 0

    @property
    def cp(self) -> Any:
        return self.value("context_parallel_size")

    @property
    def ep(self) -> Any:
        return self.value("expert_model_parallel_size")

    @property
    def etp(self) -> Any:
        return self.value("expert_tensor_parallel_size")

    @property
    def gtp(self) -> Any:
        """Weight shards over TP: an extra factor of the dense grid (1 unless asked for)."""
        shards = self.get("tensor_parallel_num_weight_shards")
        return 1 if shards is None else np.maximum(shards // self.tp, 1)

    @property
    def egtp(self) -> Any:
        """The same for experts, over ETP."""
        shards = self.get("expert_tensor_parallel_num_weight_shards")
        return 1 if shards is None else np.maximum(shards // self.etp, 1)

    @property
    def mbs(self) -> Any:
        """Micro-batch size, at least 1: a rule of its own asks for that."""
        return np.maximum(self.value("micro_batch_size"), 1)

    @property
    def gbs(self) -> Any:
        return self.value("global_batch_size")

    @property
    def world(self) -> Any:
        return self.value("world_size")

    @property
    def sp(self) -> Any:
        return self.value("sequence_parallel")

    @property
    def dense_grid(self) -> Any:
        """GPUs one dense replica takes: tp*pp*cp (times the weight shards)."""
        return self.tp * self.pp * self.cp * self.gtp

    @property
    def expert_grid(self) -> Any:
        """GPUs one replica of the experts takes: etp*ep*pp (times the weight shards)."""
        return self.etp * self.ep * self.pp * self.egtp

    @property
    def dp(self) -> Any:
        """world / (tp*pp*cp), at least 1: rules on it ask for divisibility elsewhere."""
        return np.maximum(self.world // self.dense_grid, 1)

    @property
    def edp(self) -> Any:
        return np.maximum(self.world // self.expert_grid, 1)

    @property
    def min_gpus(self) -> Any:
        """Fewest GPUs that both grids divide: lcm of the two."""
        return np.lcm(self.dense_grid, self.expert_grid)

    @property
    def num_microbatches(self) -> Any:
        """gbs / (mbs*dp), rounded down."""
        return self.gbs // (self.mbs * self.dp)

    # What is trained.

    @property
    def experts(self) -> int:
        """Routed experts; 0 for a dense model."""
        return int(self.get("num_moe_experts") or 0)

    @property
    def is_moe(self) -> bool:
        return self.experts > 0

    @property
    def layers(self) -> int:
        return int(self.value("num_layers"))

    @property
    def attention_heads(self) -> tuple[tuple[int, int], ...]:
        """(query heads, key-value heads) of every kind of softmax attention layer."""
        if self.model is not None and not self.options.get("num_attention_heads"):
            from meshwright.layout.rules.sources import head_counts

            return head_counts(self.model)
        heads = int(self.value("num_attention_heads"))
        groups = None if self.on("multi_latent_attention") else self.get("num_query_groups")
        return ((heads, int(groups or heads)),)


_DEGREES = ("vpp", "gtp", "egtp", "tp", "pp", "cp", "ep", "etp", "mbs", "gbs", "world", "sp", "dp", "edp")
_DERIVED = frozenset(
    {*_DEGREES, "dense_grid", "expert_grid", "min_gpus", "num_microbatches", "experts", "layers"}
)
