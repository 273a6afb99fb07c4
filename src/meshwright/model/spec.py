"""What is trained: a model as a list of layers, each made of a token mixer and a feed-forward part.

Names follow the field: `hidden` is the width of the residual stream, `heads` and `kv_heads` count
attention heads, `ffn` is the inner width of a feed-forward block, `top_k` counts the routed experts
a token visits. All sizes are counts of elements; nothing here depends on how training is divided.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

Normalization = Literal["rms", "layer", "layer-no-bias", "none"]
"""rms: one weight; layer: weight and bias; layer-no-bias: weight only; none: no parameters (OLMo 1)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Indexer:
    """The top-k token selector of sparse attention (DeepSeek-V3.2)."""

    heads: int
    head_dim: int
    top_k: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Compressor:
    """Pools `ratio` keys into one before attention (DeepSeek-V4)."""

    ratio: int
    width: int
    """Outputs of its key-value and gate projections."""
    indexer: Indexer | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Attention:
    """Softmax attention: MHA (kv_heads == heads), GQA or MQA, full or sliding window."""

    heads: int
    kv_heads: int
    head_dim: int
    v_head_dim: int | None = None
    """Width of a value head where it differs from `head_dim`."""
    qkv_bias: bool = False
    out_bias: bool = False
    qk_norm: Literal["head", "full"] | None = None
    """head: one norm of `head_dim` for q and one for k; full: over the whole projection (OLMo 2)."""
    window: int | None = None
    """Sliding-window size in tokens; None attends to the whole sequence."""
    output_gate: bool = False
    """A gate as wide as the query multiplies the output (Qwen3-Next)."""
    head_gate: bool = False
    """One gate a head, a linear map hidden -> heads (Step 3.7)."""
    sinks: bool = False
    """One learned sink logit a head (GPT-OSS)."""
    shares_kv: bool = False
    """Takes keys and values of the layer before (cross-layer sharing): no K and V projection."""
    k_is_v: bool = False
    """Values are the keys: no V projection (Gemma 4 global layers)."""
    q_rank: int | None = None
    """Low-rank query projection hidden -> q_rank -> heads (multi-matrix factorisation attention)."""
    o_groups: int = 0
    o_rank: int = 0
    """Low-rank output projection: each of `o_groups` groups of heads -> o_rank, then all -> hidden."""
    compressor: Compressor | None = None
    other_parameters: int = 0
    """Parameters of parts that have no field of their own (sparse indexers), replicated over TP."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Mla:
    """Multi-head latent attention (DeepSeek-V2): low-rank q and kv, decoupled rotary part."""

    heads: int
    q_lora: int | None
    """Rank of the query projection; None projects directly (V2-Lite)."""
    kv_lora: int
    qk_nope: int
    qk_rope: int
    v_head: int
    indexer: Indexer | None = None
    other_parameters: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class LinearAttention:
    """Linear attention: gated delta net (gdn), Kimi delta attention (kda), lightning."""

    kind: Literal["gdn", "kda", "lightning"]
    k_heads: int
    v_heads: int
    k_dim: int
    v_dim: int
    conv: int = 0
    """Width of the short causal convolution; 0 for none."""
    other_parameters: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Mamba2:
    """State-space mixer Mamba-2."""

    heads: int
    head_dim: int
    state: int
    groups: int
    conv: int = 4


Mixer = Attention | Mla | LinearAttention | Mamba2


@dataclass(frozen=True, slots=True, kw_only=True)
class Mlp:
    """Dense feed-forward: gated (three matrices) or not (two)."""

    ffn: int
    gated: bool = True
    bias: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Moe:
    """Mixture of experts: a router, `experts` routed experts, optionally shared ones."""

    experts: int
    top_k: int
    ffn: int
    """Inner width of one routed expert."""
    gated: bool = True
    bias: bool = False
    """The experts' linears have biases (GPT-OSS)."""
    clamped: bool = False
    """What the gated activation takes is clamped before (GPT-OSS)."""
    shared_ffn: int = 0
    """Summed inner width of the shared experts; 0 for none."""
    shared_gate: bool = False
    """A sigmoid gate hidden -> 1 on the shared expert (Qwen2-MoE)."""
    router_bias: bool = False
    """The router is a linear map with a learned bias (GPT-OSS)."""
    expert_bias: bool = False
    """A bias an expert for balancing without an auxiliary loss: a buffer, not trained (DeepSeek-V3)."""
    latent: int | None = None
    """Experts work in a space of this width, with shared down and up projections (Nemotron 3)."""
    parallel_ffn: int = 0
    """Inner width of a dense block beside the experts; 0 for none (Gemma 4 26B)."""
    other_parameters: int = 0


Ffn = Mlp | Moe


@dataclass(frozen=True, slots=True, kw_only=True)
class Layer:
    """One kind of decoder layer. Hybrid models have layers with only a mixer or only an `ffn`."""

    mixer: Mixer | None
    ffn: Ffn | None
    norms: int = 2
    """Number of norms over `hidden` in the layer."""
    scales: int = 0
    """Elements of learned scales that are no norm and are counted with the norms (Gemma 4's router)."""
    other_parameters: int = 0
    share: float = 1.0
    """Share of the job's tokens that pass the layer (the shorter side of an encoder-decoder)."""

    @property
    def is_moe(self) -> bool:
        return isinstance(self.ffn, Moe)


@dataclass(frozen=True, slots=True, kw_only=True)
class Vision:
    """Vision tower and projector in front of a language model, on its first pipeline stage."""

    layers: int
    hidden: int
    heads: int
    ffn: int
    gated: bool
    parameters: int
    """All parameters of tower and projector."""
    projector_parameters: int
    tokens_per_image: int
    frozen: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class RopeScaling:
    """How rotary positions are stretched beyond the length a model was first trained at.

    kind      linear: positions over `factor`; llama3: by wavelength (Llama 3.1); yarn: YaRN, with the
              scale of attention that goes with it; dynamic and longrope are named and not described
    original  sequence length before it was stretched [tokens]
    low, high         frequency factors of llama3
    beta_fast, beta_slow   bounds of YaRN's ramp [rotations]
    mscale, mscale_all_dim YaRN's scales of attention, where the model states them
    truncate  bounds of the ramp are rounded to whole dimensions
    """

    kind: Literal["linear", "llama3", "yarn", "dynamic", "longrope"]
    factor: float
    original: int | None = None
    low: float = 1.0
    high: float = 4.0
    beta_fast: float = 32.0
    beta_slow: float = 1.0
    mscale: float | None = None
    mscale_all_dim: float | None = None
    truncate: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Router:
    """How scores of experts become weights; the same in every layer with experts."""

    score: Literal["softmax", "sigmoid"] = "softmax"
    normalized: bool | None = None
    """Weights of the chosen experts are made to sum to 1; None where it is not known."""
    groups: int = 1
    """Experts stand in this many groups, of which a token visits `group_top_k`."""
    group_top_k: int = 1
    scale: float = 1.0
    """Factor on the weights (DeepSeek's routed_scaling_factor)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Model:
    """A decoder-only model (text part and, where there is one, its vision tower)."""

    name: str
    family: str
    hidden: int
    kinds: tuple[Layer, ...]
    """The distinct layers of the model."""
    pattern: tuple[int, ...]
    """For each decoder layer in order, its index into `kinds`."""
    vocab_size: int
    tied: bool = False
    """Input embedding and output projection are one matrix."""
    normalization: Normalization = "rms"
    learned_positions: int = 0
    """Rows of a learned position embedding; 0 for rotary or none."""
    embedding_norm: bool = False
    """A norm right after the embedding (BLOOM)."""
    head_bias: bool = False
    """The output projection has a bias (Phi)."""
    final_norm: bool = True
    loss_share: float = 1.0
    """Share of the job's tokens that have logits (the decoder's side of an encoder-decoder)."""
    mtp: tuple[int, ...] = ()
    """Multi-token-prediction modules: for each, the kind of its transformer layer."""
    vision: Vision | None = None
    max_position: int | None = None
    rope_base: float | None = None
    """Base of the rotary embedding's frequencies; None where it is not known (or there is no rotary)."""
    norm_epsilon: float | None = None
    rope_scaling: RopeScaling | None = None
    """None where positions are not stretched, or nobody said."""
    rope_share: float | None = None
    """Share of a head's width that is rotated, where it is not all."""
    rope_local_base: float | None = None
    """Base in layers with a window, where it is another (Gemma 3)."""
    router: Router | None = None
    """None for a dense model, or where nobody said."""
    activation: str | None = None
    """Activation function by Hugging Face's name; None for SiLU in gated blocks, GELU in others."""
    zero_centered_norm: bool = False
    """Norms multiply by 1 + weight (Gemma, Qwen3-Next)."""
    embedding_scale: bool = False
    """What the embedding gives is multiplied by the root of `hidden` (Gemma)."""
    attention_softcap: float | None = None
    logit_softcap: float | None = None
    """Scores of attention, or logits, go through cap * tanh(x / cap) (Gemma 2)."""
    query_scalar: float | None = None
    """Attention divides by its root instead of that of the head's width (Gemma 2 and 3)."""
    hugging_face_id: str | None = None
    source: str = ""
    """Where the figures come from."""
    aliases: tuple[str, ...] = ()
    other_parameters: int = 0
    notes: tuple[str, ...] = field(default=())

    @property
    def num_layers(self) -> int:
        return len(self.pattern)

    @property
    def is_moe(self) -> bool:
        return any(kind.is_moe for kind in self.kinds)

    @property
    def num_experts(self) -> int:
        """Routed experts of a MoE layer (0 for a dense model)."""
        return max((kind.ffn.experts for kind in self.kinds if isinstance(kind.ffn, Moe)), default=0)

    @property
    def is_hybrid(self) -> bool:
        """Layers hold a mixer or a feed-forward part alone, or are Mamba: Megatron's hybrid (Mamba) model."""
        return any(
            kind.mixer is None or kind.ffn is None or isinstance(kind.mixer, Mamba2) for kind in self.kinds
        )

    def layers_of(self, kind: int) -> int:
        """How many decoder layers are of this kind."""
        return self.pattern.count(kind)
