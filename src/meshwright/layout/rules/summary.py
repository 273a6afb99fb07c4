"""What a layout comes to, in words: the numbers people check by hand."""

from __future__ import annotations

from collections.abc import Callable

from meshwright.layout.rules.batch import microbatch_words
from meshwright.layout.rules.layouts import stages_of
from meshwright.layout.rules.pipeline import blocks, split_kind
from meshwright.layout.rules.sequence import sequence_step
from meshwright.layout.rules.uneven import middle, per_rank
from meshwright.layout.rules.view import Undecided, View


def summary(view: View) -> tuple[str, ...]:
    """Sentences about the grids, the batch, the split, the sequence and the vocabulary of a view.

    What is not known is left out; nothing here judges (that is `check`).
    """
    sentences = (
        _sentence(part, view) for part in (_grids, microbatch_words, _split, _length, _vocab, _groups)
    )
    return tuple(sentence for sentence in sentences if sentence)


def _sentence(part: Callable[[View], str], view: View) -> str:
    try:
        return part(view)
    except Undecided:
        return ""


def _grids(v: View) -> str:
    words = f"needs {v.min_gpus} GPUs = pp {v.pp} x lcm({v.tp * v.cp}, {v.ep * v.etp})"
    per_node = v.get("gpus_per_node")
    if per_node:
        nodes = -(-int(v.min_gpus) // per_node)
        words += f" = {nodes} {'node' if nodes == 1 else 'nodes'} of {per_node}"
    expert = v.ep > 1 or v.etp not in (1, v.tp)
    if expert:
        words += f"; dense grid {v.dense_grid} = TP*PP*CP, expert grid {v.expert_grid} = ETP*EP*PP"
    if "world_size" in v.options and v.world % v.min_gpus == 0:
        words += f"; DP={v.dp}" + (f", expert DP={v.edp}" if expert else "")
        words += "; EP may exceed DP: it is folded over TP*CP*DP" if v.ep > v.dp else ""
    return words


def stage_layers(v: View) -> tuple[int, ...]:
    """Decoder layers of each pipeline rank; empty where the split does not come out."""
    kind, pp = split_kind(v), int(v.pp)
    if kind == "layout":
        stages = stages_of(v["pipeline_model_parallel_layout"])
        if isinstance(stages, str) or len(stages) % pp:
            return ()
        return tuple(sum(stage.count("t") for stage in stages[rank::pp]) for rank in range(pp))
    if kind == "ends":
        layers, stages_left = middle(v)
        whole = stages_left == 0 if layers == 0 else stages_left > 0 and layers % stages_left == 0
        return per_rank(v) if whole else ()
    if kind not in ("even", "account") or blocks(v) % pp:
        return ()
    counts = [blocks(v) // pp] * pp
    counts[0] -= v.on("account_for_embedding_in_pipeline_split")
    counts[-1] -= v.on("account_for_loss_in_pipeline_split")
    return tuple(counts)


def _split(v: View) -> str:
    counts = stage_layers(v)
    if not counts or v.pp == 1:
        return ""
    chunks = f", {v.vpp} chunks a stage" if v.vpp > 1 else ""
    if len(set(counts)) == 1:
        return f"{counts[0]} layers per stage{chunks}"
    return f"{'/'.join(map(str, counts))} layers on the stages{chunks}"


def _length(v: View) -> str:
    step = sequence_step(int(v.cp), int(v.tp), bool(v.sp))
    formula = "CP*lcm(2,TP)" if v.sp and v.cp > 1 else "TP" if v.sp else "2*CP"
    if step == 1:
        return ""
    return (
        f"sequences are multiples of {step} = {formula} ({v['seq_length']} % {step} = "
        f"{v['seq_length'] % step})"
    )


def _vocab(v: View) -> str:
    padded = v["padded_vocab_size"]
    if padded == v["vocab_size"]:
        return ""
    step = v["make_vocab_size_divisible_by"] * v.tp
    odd = f"; odd vocab: exports cut it back to {v['vocab_size']}" if v["vocab_size"] % v.tp else ""
    return f"the vocabulary {v['vocab_size']} is padded to {padded}, a {step} multiple{odd}"


def _groups(v: View) -> str:
    """Group routing has two meanings: groups of devices, or of nodes."""
    per_node = v.get("gpus_per_node")
    if not v.is_moe or v.ep == 1 or not per_node or v.ep * v.etp <= per_node:
        return ""
    nodes = -(-int(v.ep * v.etp) // per_node)
    return (
        f"group routing: {v.ep} groups are device-limited (EP), {nodes} groups node-limited (nodes of "
        f"an EP group)"
    )
