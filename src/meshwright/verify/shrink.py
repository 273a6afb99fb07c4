"""A small copy of a plan that keeps its pattern: every degree above 1 stays above 1.

Widths, vocabulary and sequence become tiny, each degree becomes 2, and as few layers remain as still
show every kind of layer, every stage and chunk, and the places of embedding, MTP modules and loss.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from meshwright.errors import LayoutError
from meshwright.job.spec import Execution, Recompute
from meshwright.layout.layout import Layout
from meshwright.layout.notation import Chunk
from meshwright.layout.pipeline import PipelineLayout
from meshwright.model.spec import (
    Attention,
    Ffn,
    Layer,
    LinearAttention,
    Mamba2,
    Mixer,
    Mla,
    Mlp,
    Model,
)
from meshwright.verify.engine_config import Placement
from meshwright.verify.engine_fields import is_hybrid
from meshwright.verify.subject import Subject, placed

MOST_RANKS = 16
HEADS, KV_HEADS, HEAD_DIM, HIDDEN = 8, 4, 16, 64
FFN, EXPERTS, EXPERT_FFN, VOCAB, SEQUENCE = 128, 8, 32, 512, 32


@dataclass(frozen=True, slots=True)
class SmallCopy:
    """The shrunken plan, the same model on one rank, and what the copy leaves out."""

    subject: Subject
    reference: Subject
    notes: tuple[str, ...]


def shrink(subject: Subject, most_ranks: int = MOST_RANKS) -> SmallCopy:
    """The small copy of a plan; LayoutError where it would need more than `most_ranks` processes."""
    notes: list[str] = []
    apart = mtp_apart(subject)
    layout, world = small_layout(subject, 3 if apart else 2, most_ranks)
    if layout is None and apart:
        notes.append("MTP modules share the last stage with the loss in the small copy")
        apart = False
        layout, world = small_layout(subject, 2, most_ranks)
    if layout is None:
        raise LayoutError(f"the smallest copy of {subject.layout} needs more than {most_ranks} processes")
    model, placement = small_model(subject, layout, apart)
    execution = small_execution(subject.execution, notes)
    global_batch = 2 * layout.pp * layout.mbs * layout.dp(world)  # two rounds through the pipeline
    small = Subject(
        model=model,
        layout=layout,
        world=world,
        seq_length=SEQUENCE,
        global_batch=global_batch,
        execution=execution,
        placement=placement,
    )
    alone = replace(
        small,
        layout=Layout(mbs=layout.mbs),
        world=1,
        placement=Placement(),
        execution=replace(execution, recompute=Recompute(), optimizer_instances=1),
    )
    return SmallCopy(small, alone, tuple(notes))


def small_layout(subject: Subject, stages: int, most_ranks: int) -> tuple[Layout | None, int]:
    """Degrees of 2 for degrees above 1; experts keep spanning data-parallel ranks where they do.

    None where even one data-parallel copy needs too many ranks.
    """
    big = subject.layout
    tp, cp, etp = (min(degree, 2) for degree in (big.tp, big.cp, big.etp))
    if subject.model.is_moe and big.ep == 1 and tp == etp and big.tp != big.etp:
        # which of the two grids is wider decides what the experts' gradients are summed over
        tp, etp = (2 * tp, etp) if big.tp > big.etp else (tp, 2 * etp)
    pp = 1 if big.pp == 1 else min(stages, big.pp)
    ep = min(big.ep, 2)
    if big.ep > 1 and big.ep * big.etp > big.tp * big.cp:
        ep = max(2, 2 * tp * cp // etp)
    layout = Layout(tp=tp, pp=pp, vpp=min(big.vpp, 2), cp=cp, ep=ep, etp=etp, mbs=min(big.mbs, 2), sp=big.sp)
    if layout.min_gpus > most_ranks:
        return None, 0
    world = layout.min_gpus
    moe = subject.model.is_moe
    copies = subject.execution.optimizer_instances > 1
    several = big.dp(subject.world) > 1 or (moe and big.edp(subject.world) > 1)
    while several and (layout.dp(world) == 1 or (copies and layout.edp(world) == 1)):
        if 2 * world > most_ranks:
            break
        world *= 2
    return layout, world


def small_execution(execution: Execution, notes: list[str]) -> Execution:
    """The same flags, less those that change results or need a GPU."""
    if execution.capacity_factor is not None:
        notes.append("no token is dropped, since which ones are depends on the ranks: dropping is not proven")
    if execution.fsdp:
        notes.append(
            "the distributed optimizer stands in for FSDP: gradients are summed over the same ranks; the "
            "sharding of weights, their gathering before each layer and its overlap are not proven"
        )
    if execution.optimizer_offload:
        notes.append("the optimizer state stays where the ranks are: its offload is not proven")
    recompute = execution.recompute
    if recompute.granularity == "full":
        recompute = replace(recompute, num_layers=1)
    return replace(
        execution,
        capacity_factor=None,
        fsdp=False,
        recompute=recompute,
        optimizer_offload=0.0,
        optimizer_instances=min(execution.optimizer_instances, 2),
    )


def mtp_apart(subject: Subject) -> bool:
    """MTP modules sit on another chunk than the loss."""
    pipeline = subject.pipeline()
    return bool(pipeline and subject.model.mtp and "m" not in pipeline.chunks[-1])


def small_model(subject: Subject, layout: Layout, apart: bool) -> tuple[Model, Placement]:
    """The tiny model and where its layers go."""
    model, placement = subject.model, subject.placement
    order = kinds_in_order(model)
    if is_hybrid(model):
        counts = layout.pp * -(-len(order) // layout.pp)
        small, small_placement = None, Placement()
    elif placement.pipeline_layout:
        pipeline = subject.pipeline()
        assert pipeline is not None
        chunks = small_chunks(pipeline.chunks, layout.pp * layout.vpp, len(order), apart)
        small = PipelineLayout(layout.pp, layout.vpp, tuple(chunks))
        counts, small_placement = small.num_layers, Placement(pipeline_layout=small.string())
    else:
        counts, small_placement = small_split(placement, layout, len(order))
    pattern = [*order[:-1], *[order[-1]] * (counts - len(order) + 1)]
    shrunk = tiny(model, tuple(pattern), subject.layout)
    if not placement.pipeline_layout and small_placement == Placement():
        small_placement = placed(shrunk, layout)
    return shrunk, replace(small_placement, order=placement.order)


def kinds_in_order(model: Model) -> list[int]:
    """Each kind of layer once, by first appearance, the model's last layer at the end."""
    order = list(dict.fromkeys(model.pattern))
    last = model.pattern[-1]
    order.remove(last)
    return [*order, last]


def small_split(placement: Placement, layout: Layout, kinds: int) -> tuple[int, Placement]:
    """Layers, and the uneven split that the plan asks for by numbers."""
    chunks = layout.pp * layout.vpp
    each = max(1, -(-kinds // chunks))
    first, last = placement.first_stage_layers, placement.last_stage_layers
    if first is not None or last is not None:
        end = each * layout.vpp
        given = (first is not None) + (last is not None)
        middle = (layout.pp - given) * (each + 1) * layout.vpp
        return given * end + middle, Placement(
            first_stage_layers=end if first is not None else None,
            last_stage_layers=end if last is not None else None,
        )
    flags = placement.account_for_embedding + placement.account_for_loss
    if flags:
        kept = Placement(
            account_for_embedding=placement.account_for_embedding, account_for_loss=placement.account_for_loss
        )
        return chunks * (each + 1) - flags, kept
    return chunks * each, Placement()


def small_chunks(chunks: Sequence[Chunk], wanted: int, kinds: int, apart: bool) -> list[Chunk]:
    """`wanted` chunks with the ends of the given ones: embedding first, MTP modules and loss last."""
    modules = [item for chunk in chunks for item in chunk if item == "m"]
    tail = [thin(chunks[-1])]
    if apart:
        tail.insert(0, thin(next(chunk for chunk in chunks if "m" in chunk)))
    elif "m" not in tail[0]:
        tail = [(*tail[0][:-1], *modules, "L")]
    middle = [thin(chunk) for chunk in chunks[1:-1] if "m" not in chunk] or [("t",)]
    room = wanted - 1 - len(tail)
    found = [thin(chunks[0]), *(middle[index * len(middle) // room] for index in range(room)), *tail]
    missing = kinds - sum(chunk.count("t") for chunk in found)
    found[0] = (*found[0], *["t"] * max(missing, 0))
    return found


def thin(chunk: Chunk) -> Chunk:
    """One decoder layer where there were some, everything else as it is."""
    kept: list[str] = []
    for item in chunk:
        if item != "t" or "t" not in kept:
            kept.append(item)
    return tuple(kept)


def tiny(model: Model, pattern: tuple[int, ...], big: Layout) -> Model:
    """The model with every width cut down; what is there stays there."""
    return replace(
        model,
        name=f"{model.name} (small)",
        hidden=HIDDEN,
        kinds=tuple(tiny_layer(kind, big) for kind in model.kinds),
        pattern=pattern,
        vocab_size=VOCAB,
        learned_positions=SEQUENCE if model.learned_positions else 0,
        vision=None,
        max_position=None,
    )


def tiny_layer(layer: Layer, big: Layout) -> Layer:
    mixer = None if layer.mixer is None else tiny_mixer(layer.mixer, big)
    return replace(layer, mixer=mixer, ffn=None if layer.ffn is None else tiny_ffn(layer.ffn))


def tiny_mixer(mixer: Mixer, big: Layout) -> Mixer:
    if isinstance(mixer, Attention):
        grouped = HEADS if mixer.kv_heads == mixer.heads else KV_HEADS
        replicated = mixer.kv_heads == 1 or big.tp > mixer.kv_heads
        window = None if mixer.window is None else SEQUENCE // 4
        return replace(
            mixer, heads=HEADS, kv_heads=1 if replicated else grouped, head_dim=HEAD_DIM, window=window
        )
    if isinstance(mixer, Mla):
        return replace(
            mixer, heads=HEADS, q_lora=mixer.q_lora and 32, kv_lora=16, qk_nope=16, qk_rope=8, v_head=16
        )
    if isinstance(mixer, LinearAttention):
        return replace(mixer, k_heads=4, v_heads=8, k_dim=HEAD_DIM, v_dim=HEAD_DIM)
    assert isinstance(mixer, Mamba2)
    return replace(mixer, heads=HEADS, head_dim=HEAD_DIM, state=16, groups=2)


def tiny_ffn(ffn: Ffn) -> Ffn:
    if isinstance(ffn, Mlp):
        return replace(ffn, ffn=FFN)
    return replace(
        ffn,
        experts=EXPERTS,
        top_k=min(ffn.top_k, 2),
        ffn=EXPERT_FFN,
        shared_ffn=ffn.shared_ffn and EXPERT_FFN,
        latent=ffn.latent and 32,
    )
