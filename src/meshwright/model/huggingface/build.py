"""From layers to a `Model`, and the choices that many families share."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from meshwright.errors import QuestionError
from meshwright.model.huggingface.fields import Fields
from meshwright.model.huggingface.settings import settings
from meshwright.model.spec import Layer, Model

MTP_NAMES = ("num_nextn_predict_layers", "mtp_num_hidden_layers", "num_mtp_layers")


def assemble(c: Fields, layers: Sequence[Layer], mtp: Layer | None = None, **extra: Any) -> Model:
    """A model of these decoder layers.

    mtp    layer of an MTP module, where it is not one like the last layer
    extra  fields of `Model` beyond the usual ones
    """
    kinds = list(dict.fromkeys(layers))
    index = {kind: position for position, kind in enumerate(kinds)}
    pattern = tuple(index[layer] for layer in layers)
    modules = c.maybe(*MTP_NAMES, least=0) or 0
    if modules:
        last = mtp or layers[-1]
        if last not in index:
            index[last] = len(kinds)
            kinds.append(last)
        mtp_kinds = (index[last],) * min(modules, 16)
    else:
        mtp_kinds = ()
    usual: dict[str, Any] = {
        "name": c.kind,
        "family": c.kind,
        "hidden": c.hidden,
        "vocab_size": c.whole("vocab_size", "padded_vocab_size"),
        "tied": tied(c),
        "max_position": c.max_position,
        "rope_base": c.rope_base,
        "norm_epsilon": c.norm_epsilon,
        **settings(c, layers),
    }
    return Model(kinds=tuple(kinds), pattern=pattern, mtp=mtp_kinds, **(usual | extra))


def tied(c: Fields) -> bool:
    """Whether the output projection is the embedding.

    Absent, it is the class default; types outside transformers inherit its old base class, in which
    absent means tied.
    """
    value = c.raw("tie_word_embeddings")
    if value is None:
        return not c.kind_has_defaults
    return c.flag("tie_word_embeddings")


def repeat(c: Fields, layer: Layer) -> list[Layer]:
    """The same layer all the way."""
    return [layer] * c.layers


def windows(c: Fields, period: int | None = None, *, full_at: int = -1) -> list[int | None]:
    """Sliding window of each layer: by `layer_types`, else full attention once a period, else everywhere.

    period   layers after which full attention recurs
    full_at  its place within the period
    """
    count, size = c.layers, c.window()
    types = c.listing("layer_types", length=count)
    if types is not None:
        return [size if kind in ("sliding_attention", "sliding") else None for kind in types]
    if period:
        return [None if i % period == full_at % period else size for i in range(count)]
    return [size] * count


def sparse_layers(c: Fields) -> list[bool]:
    """Which layers hold experts: by a list of kinds, a list of flags, or the first k dense ones."""
    count = c.layers
    kinds = c.listing("mlp_layer_types", length=count)
    if kinds is not None:
        return [kind != "dense" for kind in kinds]
    flags = c.listing("moe_layer_freq", length=count)
    if flags is not None:
        return [bool(flag) for flag in flags]
    first = c.maybe("first_k_dense_replace", least=0) or 0
    every = c.maybe("moe_layer_freq") or 1
    return [i >= first and i % every == 0 for i in range(count)]


def stepped_layers(c: Fields) -> list[bool]:
    """Which layers hold experts in the Qwen manner: every `decoder_sparse_step`, minus a list."""
    step = c.maybe("decoder_sparse_step") or 1
    dense = c.raw("mlp_only_layers") or ()
    if not isinstance(dense, list | tuple):
        raise QuestionError(f"{c.where('mlp_only_layers')} is {dense!r}; it must be a list")
    return [i not in dense and (i + 1) % step == 0 for i in range(c.layers)]
