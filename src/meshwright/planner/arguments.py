"""A training run from the arguments of Megatron-LM's pretrain scripts, with that program's own defaults.

Only what decides memory and time is read; arguments of data, logging and checkpoints are passed over.
Source of names and defaults: megatron/training/arguments.py.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from meshwright.errors import LayoutError, QuestionError
from meshwright.job.spec import Execution, Job, Recompute
from meshwright.layout.layout import Layout
from meshwright.layout.pipeline import PipelineLayout
from meshwright.model.spec import Attention, Ffn, Layer, Mixer, Mla, Mlp, Model, Moe

Args = Mapping[str, Any]
MOST_LAYERS = 10_000
VOCABULARY = {"gpt": 50257, "bert": 30522, "t5": 28996}
"""Vocabularies of Megatron-LM's examples: GPT-2's byte pairs, BERT's word pieces in lower and mixed case."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Setup:
    """One run, apart from the cluster it runs on."""

    model: Model
    job: Job
    layout: Layout
    execution: Execution
    pipeline: PipelineLayout | None


def setup_from_arguments(
    args: Args, *, vocab: int | None = None, global_batch: int | None = None, program: str = "gpt"
) -> Setup:
    """The run that a set of arguments describes; keys with or without leading dashes.

    vocab         size of the tokenizer, where no argument states it; by default the program's own
    program       gpt, bert or t5: which of Megatron-LM's pretrain programs the arguments are for
    global_batch  batch where no argument states it; else one micro-batch a replica
    """
    given = {key.lstrip("-").replace("_", "-"): value for key, value in args.items()}
    encoder_decoder = given.get("decoder-num-layers") is not None
    setup = Arguments(given).setup(vocab or VOCABULARY["t5" if encoder_decoder else program], global_batch)
    if encoder_decoder:
        return replace(setup, model=t5(setup.model, Arguments(given)))
    return replace(setup, model=bert(setup.model)) if program == "bert" else setup


class Arguments:
    """Typed access to a mapping of arguments; a missing one has Megatron-LM's default."""

    def __init__(self, given: Args) -> None:
        self.given = given

    def on(self, name: str) -> bool:
        return str(self.given.get(name, False)).lower() not in ("false", "none", "", "0")

    def whole(self, name: str, default: int) -> int:
        value = self.given.get(name)
        if value is None or value == "":
            return default
        try:
            return int(float(value))
        except (TypeError, ValueError, OverflowError):
            raise QuestionError(f"--{name} is {str(value)[:40]!r}; it must be a whole number") from None

    def number(self, name: str, default: float) -> float:
        value = self.given.get(name)
        try:
            return default if value is None or value == "" else float(value)
        except (TypeError, ValueError):
            raise QuestionError(f"--{name} is {str(value)[:40]!r}; it must be a number") from None

    def word(self, name: str, default: str = "") -> str:
        value = self.given.get(name)
        return default if value is None else str(value)

    def words(self, name: str) -> tuple[str, ...]:
        """A list, however it is written: 'a b', '[a b]', '[a, b]'."""
        return tuple(re.findall(r"[\w.+]+", self.word(name)))

    def setup(self, vocab: int, global_batch: int | None) -> Setup:
        model = self.model(vocab)
        layout, pipeline = self.layout(model)
        batch = self.whole("global-batch-size", global_batch or layout.mbs)
        return Setup(
            model=model, job=self.job(batch), layout=layout, execution=self.execution(), pipeline=pipeline
        )

    def model(self, vocab: int) -> Model:
        hidden = self.whole("hidden-size", 0)
        layers = self.whole("num-layers", self.whole("encoder-num-layers", 0))
        if not hidden or not layers:
            raise QuestionError("the arguments state no --hidden-size or no --num-layers")
        if layers > MOST_LAYERS:
            raise QuestionError(f"--num-layers is {layers:,}; at most {MOST_LAYERS:,} are read")
        mixer = self.mixer(hidden)
        kinds, pattern = self.layers(layers, mixer)
        rope = self.word("position-embedding-type", "learned_absolute") != "learned_absolute"
        learned = (
            0
            if rope or self.on("use-rotary-position-embeddings")
            else self.whole("max-position-embeddings", 0)
        )
        padded = self.whole("padded-vocab-size", 0)
        size = padded or padded_to(
            self.whole("vocab-size", vocab), self.whole("make-vocab-size-divisible-by", 128)
        )
        return Model(
            name=self.word("name", "megatron-lm-arguments"),
            family="megatron-lm",
            hidden=hidden,
            kinds=kinds,
            pattern=pattern,
            vocab_size=size,
            tied=not self.on("untie-embeddings-and-output-weights"),
            normalization="rms" if self.word("normalization") == "RMSNorm" else "layer",
            learned_positions=learned,
            mtp=(pattern[-1],) * self.whole("mtp-num-layers", 0),
            max_position=self.whole("max-position-embeddings", 0) or None,
            source="arguments of Megatron-LM",
        )

    def mixer(self, hidden: int) -> Mixer:
        heads = self.whole("num-attention-heads", 0)
        if not heads:
            raise QuestionError("the arguments state no --num-attention-heads")
        if self.on("multi-latent-attention"):
            return Mla(
                heads=heads,
                q_lora=self.whole("q-lora-rank", 0) or None,
                kv_lora=self.whole("kv-lora-rank", 32),
                qk_nope=self.whole("qk-head-dim", 128),
                qk_rope=self.whole("qk-pos-emb-head-dim", 64),
                v_head=self.whole("v-head-dim", 128),
            )
        groups = self.whole("num-query-groups", 1) if self.on("group-query-attention") else heads
        bias = not self.on("disable-bias-linear")
        return Attention(
            heads=heads,
            kv_heads=groups,
            head_dim=self.whole("kv-channels", hidden // heads),
            qkv_bias=bias or self.on("add-qkv-bias"),
            out_bias=bias,
            qk_norm="head" if self.on("qk-layernorm") else None,
        )

    def layers(self, count: int, mixer: Mixer) -> tuple[tuple[Layer, ...], tuple[int, ...]]:
        hidden = self.whole("hidden-size", 0)
        gated, bias = self.on("swiglu"), not self.on("disable-bias-linear")
        # Megatron-LM narrows the default width of a gated MLP to keep its parameters
        usual = int(4 * hidden * 2 / 3 / 64) * 64 if gated else 4 * hidden
        width = self.whole("ffn-hidden-size", usual)
        dense = Layer(mixer=mixer, ffn=Mlp(ffn=width, gated=gated, bias=bias))
        experts = self.whole("num-experts", 0)
        if not experts:
            return (dense,), (0,) * count
        moe: Ffn = Moe(
            experts=experts,
            top_k=self.whole("moe-router-topk", 2),
            ffn=self.whole("moe-ffn-hidden-size", width),
            gated=gated,
            bias=bias and not self.on("moe-grouped-gemm"),
            shared_ffn=self.whole("moe-shared-expert-intermediate-size", 0),
            expert_bias=self.on("moe-router-enable-expert-bias"),
        )
        sparse = Layer(mixer=mixer, ffn=moe)
        pattern = frequency(self.word("moe-layer-freq", "1"), count)
        if all(pattern):
            return (sparse,), (0,) * count
        return (dense, sparse), pattern

    def layout(self, model: Model) -> tuple[Layout, PipelineLayout | None]:
        tp, pp = self.whole("tensor-model-parallel-size", 1), self.whole("pipeline-model-parallel-size", 1)
        ep = self.whole("expert-model-parallel-size", 1)
        pipeline = self.pipeline(model, pp)
        layout = Layout(
            tp=tp,
            pp=pp,
            vpp=pipeline.vpp if pipeline else self.vpp(model.num_layers, pp),
            cp=self.whole("context-parallel-size", 1),
            ep=ep,
            etp=self.whole("expert-tensor-parallel-size", tp) if model.is_moe else 1,
            mbs=self.whole("micro-batch-size", 1),
            sp=self.on("sequence-parallel") and tp > 1,
        )
        return layout, pipeline

    def vpp(self, layers: int, pp: int) -> int:
        """Chunks a rank: given as layers a chunk or as a number. With 1 layer chunks of 12 on pp 4: 3."""
        each = self.whole("num-layers-per-virtual-pipeline-stage", 0)
        if each:
            return max(layers // (pp * each), 1)
        return self.whole("num-virtual-stages-per-pipeline-rank", 1)

    def pipeline(self, model: Model, pp: int) -> PipelineLayout | None:
        text, mtp = self.word("pipeline-model-parallel-layout"), len(model.mtp)
        if text:
            layout = PipelineLayout.parse(text, pp)
            layout.validate(model.num_layers, mtp)
            return layout
        vpp = self.vpp(model.num_layers, pp)
        first, last = (self.whole(f"decoder-{end}-pipeline-num-layers", 0) for end in ("first", "last"))
        if first or last:
            return PipelineLayout.first_last(model.num_layers, pp, vpp, first or None, last or None, mtp)
        embedding = self.on("account-for-embedding-in-pipeline-split")
        loss = self.on("account-for-loss-in-pipeline-split")
        if embedding or loss:
            return PipelineLayout.account(model.num_layers, pp, vpp, embedding, loss, mtp)
        return None

    def job(self, batch: int) -> Job:
        precision = "fp16" if self.on("fp16") else "bf16" if self.on("bf16") else "fp32"
        if precision == "fp32":
            raise QuestionError(
                "the arguments train in fp32 (neither --bf16 nor --fp16), which is not modelled"
            )
        if self.on("fp8-format") or self.on("fp8"):
            recipe = self.word("fp8-recipe", "delayed")
            precision = {
                "delayed": "fp8",
                "tensorwise": "fp8-current",
                "blockwise": "fp8-block",
                "mxfp8": "mxfp8",
            }[recipe]
        if self.on("fp4-format"):
            precision = "nvfp4"
        kind = self.word("optimizer", "adam")
        # the flag alone leaves the moments in fp32 (megatron/core/optimizer/optimizer_config.py)
        low = self.word("exp-avg-dtype", "fp32") != "fp32"
        precise = kind == "adam" and low and self.on("use-precision-aware-optimizer")
        return Job(
            seq_length=self.whole("seq-length", self.whole("encoder-seq-length", 1024)),
            global_batch=batch,
            precision=precision,  # type: ignore[arg-type]
            optimizer="adam-precision-aware" if precise else kind.replace("dist_", ""),  # type: ignore[arg-type]
            # Megatron-LM accumulates bf16 gradients in fp32; fp16 ones in fp16 unless it is told otherwise
            grad_dtype="fp32" if self.on("bf16") or self.on("accumulate-allreduce-grads-in-fp32") else "bf16",
            hidden_dropout=self.number("hidden-dropout", 0.1),
            attention_dropout=self.number("attention-dropout", 0.1),
        )

    def execution(self) -> Execution:
        backend = {"flash": "flash", "fused": "fused", "unfused": "unfused", "local": "unfused"}
        local = self.word("transformer-impl", "transformer_engine") == "local" or self.word("spec") == "local"
        fused = self.on("cross-entropy-loss-fusion")
        flex = self.word("moe-flex-dispatcher-backend", "deepep")
        dispatcher = self.word("moe-token-dispatcher-type", "allgather")
        overlaps = {
            "dp": self.on("overlap-grad-reduce"),
            "tp": self.on("tp-comm-overlap"),
            "ep": self.on("overlap-moe-expert-parallel-comm"),
        }
        group = self.whole("microbatch-group-size-per-virtual-pipeline-stage", 0)
        return Execution(
            recompute=self.recompute(),
            dispatcher=flex if dispatcher == "flex" else dispatcher,  # type: ignore[arg-type]
            overlaps=frozenset(kind for kind, on in overlaps.items() if on),  # type: ignore[misc]
            distributed_optimizer=self.on("use-distributed-optimizer"),
            fsdp=self.on("use-megatron-fsdp") or self.on("use-custom-fsdp"),
            optimizer_offload=self.number("optimizer-offload-fraction", 1.0)
            if self.on("optimizer-cpu-offload")
            else 0.0,
            cross_entropy_fusion=fused,
            cross_entropy_impl=self.word("cross-entropy-fusion-impl", "native"),  # type: ignore[arg-type]
            capacity_factor=self.number("moe-expert-capacity-factor", 0.0) or None,
            grouped_gemm=self.on("moe-grouped-gemm"),
            transformer_impl="local" if local else "transformer-engine",
            attention_backend=backend.get(self.word("attention-backend", "auto"), "auto"),  # type: ignore[arg-type]
            activation_fusion=not (self.on("no-bias-gelu-fusion") or self.on("no-bias-swiglu-fusion")),
            gradient_accumulation_fusion=not self.on("no-gradient-accumulation-fusion"),
            optimizer_instances=self.whole("num-distributed-optimizer-instances", 1),
            fp8_param_gather=self.on("fp8-param-gather"),
            vp_group=group or None,
            fsdp_sharding=self.word("data-parallel-sharding-strategy", "optim_grads_params"),  # type: ignore[arg-type]
            fsdp_double_buffer=self.on("fsdp-double-buffer"),
            offload_modules=self.words("offload-modules")
            if self.on("fine-grained-activation-offloading")
            else (),
            cpu_offload_layers=self.whole("cpu-offloading-num-layers", 0),
            attention_mask=not self.on("no-create-attention-mask-in-dataloader"),
            deterministic=self.on("deterministic-mode"),
            embedding_wgrad_deferral=self.whole("wgrad-deferral-limit", 0)
            if self.on("defer-embedding-wgrad-compute")
            else None,
        )

    def recompute(self) -> Recompute:
        granularity = self.word("recompute-granularity", "none")
        if granularity == "selective":
            return Recompute(
                granularity="selective", modules=self.words("recompute-modules") or ("core_attn",)
            )
        if granularity == "full":
            method = self.word("recompute-method", "uniform")
            return Recompute(
                granularity="full",
                method="block" if method == "block" else "uniform",
                num_layers=self.whole("recompute-num-layers", 1) or None,
            )
        return Recompute()


def bert(model: Model) -> Model:
    """The parts of BERT beside its layers: token types, the head's transform with norm and bias, the pooler.

    Source: megatron/core/models/bert (bert_model.py, bert_lm_head.py, pooler.py).
    """
    hidden = model.hidden
    extra = 2 * hidden + (hidden * hidden + 3 * hidden) + (hidden * hidden + hidden) + 2 * hidden
    return replace(model, head_bias=True, other_parameters=extra)


def t5(model: Model, said: Arguments) -> Model:
    """An encoder-decoder as layers that see different shares of the encoder's tokens.

    A decoder layer is self-attention and MLP at the decoder's length, and cross-attention whose queries are
    the decoder's and whose keys the encoder's: as many scores as at the geometric mean of both lengths.
    """
    share = said.whole("decoder-seq-length", 128) / max(said.whole("encoder-seq-length", 512), 1)
    encoder = model.kinds[0]
    own = replace(encoder, ffn=None, norms=1, share=share)
    cross = replace(encoder, ffn=None, norms=1, share=share**0.5)
    feed_forward = replace(encoder, mixer=None, norms=1, share=share)
    layers = said.whole("decoder-num-layers", model.num_layers)
    return replace(
        model,
        kinds=(encoder, own, cross, feed_forward),
        pattern=model.pattern + (1, 2, 3) * layers,
        head_bias=True,
        loss_share=share,
        vocab_size=model.vocab_size + said.whole("vocab-extra-ids", 0),
    )


def padded_to(size: int, multiple: int) -> int:
    """`size` rounded up to a multiple, where the multiple is not Megatron's usual 128."""
    return size if multiple == 128 else -(-size // multiple) * multiple


def frequency(text: str, layers: int) -> tuple[int, ...]:
    """--moe-layer-freq: a number N (every Nth layer has experts) or a list such as ([0]*3+[1]*58)."""
    if re.fullmatch(r"\d+", text.strip()):
        every = max(int(text), 1)
        return tuple(int(layer % every == 0) for layer in range(layers))
    pattern: list[int] = []
    for values, times in re.findall(r"\[([\d,\s]+)\](?:\s*\*\s*(\d+))?", text):
        numbers = [int(value) for value in re.findall(r"\d+", values)]
        if len(pattern) + len(numbers) * int(times or 1) > MOST_LAYERS:
            raise QuestionError(f"--moe-layer-freq names more than {MOST_LAYERS:,} layers")
        pattern += numbers * int(times or 1)
    if len(pattern) != layers:
        raise LayoutError(f"--moe-layer-freq {text} names {len(pattern)} layers and the model has {layers}")
    return tuple(min(value, 1) for value in pattern)
