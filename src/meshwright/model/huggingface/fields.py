"""Fields of a config.json: checked, with the defaults of the configuration class, and what is missing noted.

A field may be spelled in several ways; the first spelling is the one an error names. A missing field
does not raise at once: it is noted, stands in as 1, and `check` reports all of them together.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from meshwright.errors import QuestionError
from meshwright.facts import load_json
from meshwright.model.spec import Attention

SIZES = frozenset(
    {"vocab_size", "hidden_size", "num_hidden_layers", "num_attention_heads"}
    | {"n_embd", "n_layer", "n_head", "d_model", "n_layers", "n_heads"}
)
"""Sizes that are never taken from a default, unless the config is the text part of another one:
such parts are stored as differences from the class defaults."""

LAYER_COUNTS = frozenset({"num_hidden_layers", "n_layer", "n_layers", "num_layers"})
MOST_LAYERS = 10_000
MOST = 10**9


class Fields:
    """One config (or part of one) of a known type.

    given    the JSON object
    kind     its model_type: a key of the table of defaults, or a type without defaults
    part     it is the text part of a multimodal config
    """

    def __init__(self, given: Mapping[str, Any], kind: str, *, part: bool = False) -> None:
        self.given = given
        self.kind = kind
        self.part = part
        self.missing: list[str] = []
        self.defaulted: dict[str, Any] = {}
        self._defaults: Mapping[str, Any] = defaults_of(kind)

    def raw(self, *names: str) -> Any:
        """The value under the first spelling that is given and not null, else its default, else None.

        A null in the config is an answer ("none", or "derive it") and keeps the default away.
        """
        given = [name for name in names if name in self.given]
        for name in given:
            if self.given[name] is not None:
                return self.given[name]
        for name in () if given else names:
            if name in self._defaults and (self.part or name not in SIZES):
                self.defaulted[name] = self._defaults[name]
                return self._defaults[name]
        return None

    def whole(self, *names: str, least: int = 1) -> int:
        """A whole number of at least `least`; noted as missing where there is none."""
        value = self.maybe(*names, least=least)
        if value is None:
            self.missing.append(names[0])
            return 1
        return value

    def maybe(self, *names: str, least: int = 1) -> int | None:
        """A whole number of at least `least`, or None where the config has none."""
        value = self.raw(*names)
        if value is None:
            return None
        most = MOST_LAYERS if names[0] in LAYER_COUNTS else MOST
        return whole_number(self.where(names[0]), value, least, most)

    def uniform(self, *names: str, least: int = 1) -> int | None:
        """Like `maybe`, where the config may give the same number once a layer."""
        value = self.raw(*names)
        if isinstance(value, list) and value:
            if any(item != value[0] for item in value):
                raise QuestionError(
                    f"{self.where(names[0])} differs from layer to layer; one number is described"
                )
            value = value[0]
        return None if value is None else whole_number(self.where(names[0]), value, least, MOST)

    def flag(self, *names: str) -> bool:
        """True or false; absent is false."""
        value = self.raw(*names)
        if value is None:
            return False
        if not isinstance(value, bool):
            raise QuestionError(f"{self.where(names[0])} is {value!r}; it must be true or false")
        return value

    def listing(self, *names: str, length: int) -> Sequence[Any] | None:
        """A list with one item a layer, or None."""
        value = self.raw(*names)
        if value is None or not isinstance(value, list):
            return None
        if len(value) < length:
            raise QuestionError(
                f"{self.where(names[0])} has {len(value)} items; the model has {length} layers"
            )
        return value[:length]

    def inside(self, name: str) -> Fields:
        """The object under `name` (empty where absent)."""
        value = self.given.get(name)
        return Fields(value if isinstance(value, Mapping) else {}, f"{self.kind}.{name}", part=True)

    def refuse(self, name: str, why: str) -> None:
        """Raise where a field is set that the reader of this type does not describe."""
        if self.given.get(name):
            raise QuestionError(f"{self.where(name)} is {self.given[name]!r}: {why}")

    def where(self, name: str) -> str:
        return f"config.json ({self.kind}): {name}"

    def check(self) -> None:
        """QuestionError that lists every missing field."""
        if self.missing:
            names = list(dict.fromkeys(self.missing))
            them = "it" if len(names) == 1 else "them"
            raise QuestionError(
                f"config.json ({self.kind}): missing {', '.join(names)}; without {them} the size is unknown"
            )

    @property
    def kind_has_defaults(self) -> bool:
        return bool(self._defaults)

    @property
    def hidden(self) -> int:
        return self.whole("hidden_size", "n_embd", "d_model", "n_embed")

    @property
    def layers(self) -> int:
        return self.whole("num_hidden_layers", "n_layer", "n_layers", "num_layers")

    @property
    def heads(self) -> int:
        return self.whole("num_attention_heads", "n_head", "n_heads")

    @property
    def kv_heads(self) -> int:
        return self.maybe("num_key_value_heads", "num_kv_heads", "num_attention_groups") or self.heads

    @property
    def head_dim(self) -> int:
        given = self.maybe("head_dim", "attention_head_dim", "kv_channels")
        if given is not None:
            return given
        if self.hidden % self.heads and not self.missing:
            raise QuestionError(
                f"config.json ({self.kind}): hidden_size {self.hidden} is not a multiple of {self.heads} "
                "attention heads and head_dim is not given"
            )
        return max(self.hidden // self.heads, 1)

    @property
    def ffn(self) -> int:
        return self.whole("intermediate_size", "ffn_hidden_size", "n_inner", "ffn_dim")

    @property
    def max_position(self) -> int | None:
        return self.maybe(
            "max_position_embeddings", "model_max_length", "n_positions", "max_seq_len", "seq_length"
        )

    @property
    def rope_base(self) -> float | None:
        """`rope_theta`, on top or inside `rope_parameters` (transformers 5)."""
        nested = self.raw("rope_parameters")
        if isinstance(nested, dict) and isinstance(nested.get("full_attention"), dict):
            nested = nested["full_attention"]  # one set for each kind of layer (Gemma 3)
        inside = nested.get("rope_theta") if isinstance(nested, dict) else None
        return _positive(self.raw("rope_theta"), self.raw("rotary_emb_base"), inside)

    @property
    def norm_epsilon(self) -> float | None:
        names = ("rms_norm_eps", "layer_norm_eps", "layer_norm_epsilon", "norm_eps", "norm_epsilon")
        return _positive(*(self.raw(name) for name in names))

    def attention(self, **extra: Any) -> Attention:
        """Grouped-query attention of the usual fields; `extra` overrides them."""
        usual = {"heads": self.heads, "kv_heads": self.kv_heads}
        if "head_dim" not in extra:
            usual["head_dim"] = self.head_dim
        attention = Attention(**(usual | extra))
        if attention.heads % attention.kv_heads and not self.missing:
            raise QuestionError(
                f"config.json ({self.kind}): {attention.heads} attention heads are not a multiple of "
                f"{attention.kv_heads} key-value heads"
            )
        return attention

    def window(self, *names: str) -> int | None:
        """Sliding window in tokens; None where absent or as long as the longest sequence."""
        size = self.maybe(*(names or ("sliding_window",)), least=0)
        longest = self.max_position
        return None if not size or (longest is not None and size >= longest) else size


def _positive(*values: Any) -> float | None:
    """The first that is a number above 0."""
    for value in values:
        if isinstance(value, (int, float)) and not isinstance(value, bool) and 0 < value < 1e15:
            return float(value)
    return None


def whole_number(what: str, value: Any, least: int, most: int) -> int:
    """`value` as an int, or a QuestionError: not whole, below `least`, or beyond belief."""
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int):
        raise QuestionError(f"{what} is {_shown(value)}; it must be a whole number")
    if value < least:
        raise QuestionError(f"{what} is {value}; it must be at least {least}")
    if value > most:
        raise QuestionError(f"{what} is {_shown(value)}; beyond {most:,} it cannot be meant")
    return value


def defaults_of(kind: str) -> Mapping[str, Any]:
    """Class defaults of a model_type (empty for types that live outside transformers)."""
    table: Mapping[str, Mapping[str, Any]] = load_json("meshwright.model", "huggingface.json")["defaults"]
    return table.get(kind, {})


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 40 else f"{text[:37]}..."
