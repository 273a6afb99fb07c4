"""Two configs side by side: what differs, and what it costs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from meshwright.frameworks.check import CheckResult, check_reading
from meshwright.frameworks.estimating import estimate_of
from meshwright.frameworks.reading import Plain, Reading, Value
from meshwright.frameworks.spelling import short_names
from meshwright.frameworks.view import Beside
from meshwright.frameworks.written import DEFAULTS

if TYPE_CHECKING:
    from meshwright.planner.answer import Estimate

PATHS = frozenset(
    {"save", "load", "data_path", "tokenizer_model", "vocab_file", "merge_file", "tensorboard_dir"}
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """Two checked runs, the options in which they differ, and their estimates where there are any."""

    left: CheckResult
    right: CheckResult
    differs: dict[str, tuple[Value | None, Value | None]]
    left_estimate: Estimate | None
    right_estimate: Estimate | None

    def costs(self) -> dict[str, tuple[float, float]]:
        """Step time, tokens a second and GPU, and peak memory of both [s, 1/s, bytes]."""
        one, two = self.left_estimate, self.right_estimate
        if one is None or two is None or one.time is None or two.time is None:
            return {}
        found = {
            "step_seconds": (one.time.step_seconds, two.time.step_seconds),
            "tokens_per_second_per_gpu": (
                one.time.tokens_per_second_per_gpu,
                two.time.tokens_per_second_per_gpu,
            ),
        }
        if one.memory is not None and two.memory is not None:
            found["peak_bytes"] = (float(one.memory.peak_bytes), float(two.memory.peak_bytes))
        return found

    def as_dict(self) -> dict[str, Any]:
        def side(value: Value | None) -> dict[str, Any] | None:
            return None if value is None else {"value": value.value, "from": str(value.source)}

        return {
            "left": self.left.as_dict(),
            "right": self.right.as_dict(),
            "differs": {k: {"left": side(a), "right": side(b)} for k, (a, b) in self.differs.items()},
            "costs": {k: {"left": a, "right": b} for k, (a, b) in self.costs().items()},
        }


GATED: Mapping[str, Plain] = {"activation_func": "silu", "gated_linear_unit": True}
"""What Bridge says for Megatron-LM's --swiglu."""
UNSET: Mapping[str, Plain] = {
    **DEFAULTS,
    "task": "pretrain",
    "cuda_graph_impl": "none",
    "split": "969, 30, 1",
}
"""What holds where nothing is said (megatron/training/arguments.py)."""
AS_LONG = ("max_position_embeddings", "dataset_seq_length")
"""Lengths that are the sequence's where nothing is said."""


def _meant(name: str, resolved: Mapping[str, Value]) -> Plain:
    """What an option comes to: defaults, and other words for the same, as the value that they stand for."""
    said = {key: value.value for key, value in resolved.items() if value is not None}
    found = said.get(name)
    gated = said.get("swiglu") is True or all(said.get(key) == value for key, value in GATED.items())
    if gated and (name == "swiglu" or name in GATED):
        return True
    if found is None and name in AS_LONG:
        return said.get("seq_length")
    if found is None:
        found = UNSET.get(name)
    return None if found is False else found


def compare(left: Reading, right: Reading, beside: Beside | None = None) -> Comparison:
    """Check both and list what differs, effective values included."""
    one, two = check_reading(left, beside), check_reading(right, beside)
    names = [n for n in {**one.resolved, **two.resolved} if n not in short_names() and n not in PATHS]
    differs: dict[str, tuple[Value | None, Value | None]] = {}
    for name in names:
        a, b = one.resolved.get(name), two.resolved.get(name)
        if _meant(name, one.resolved) != _meant(name, two.resolved):
            differs[name] = (a, b)
    return Comparison(
        left=one,
        right=two,
        differs=differs,
        left_estimate=estimate_of(one.reading, one.view),
        right_estimate=estimate_of(two.reading, two.view),
    )
