"""What is written: a plan as options in Megatron's names, with the machines it runs on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from meshwright.frameworks.model_words import WORDS, settings_of
from meshwright.frameworks.reading import Plain, Reading, Value
from meshwright.frameworks.spelling import table

if TYPE_CHECKING:
    from meshwright.cluster.spec import Cluster
    from meshwright.job.spec import Execution, Job
    from meshwright.layout.layout import Layout
    from meshwright.model.spec import Model


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """One plan to write.

    options      parallelism, batch, precision, execution in Megatron's names; None is left out
    model        Hugging Face id or name, for frameworks that load a model by name
    environment  variables to export
    reasons      sentences for the comment on top
    """

    options: Mapping[str, Plain]
    nodes: int = 1
    gpus_per_node: int = 8
    architecture: Mapping[str, Plain] = field(default_factory=dict)
    """The model's shape in Megatron's names, for frameworks that do not load it by name."""
    model: str = ""
    recipe: str | None = None
    gpu: str = ""
    environment: Mapping[str, str] = field(default_factory=dict)
    reasons: tuple[str, ...] = ()
    name: str = "train"
    task: str = "pretrain"
    lora_rank: int = 32

    @property
    def checkpoint(self) -> str:
        """What frameworks that load a model by name are given; a word to be replaced where none is known."""
        return self.model or "MODEL_PATH"

    @property
    def everything(self) -> dict[str, Plain]:
        """Shape of the model and options together."""
        return {**self.architecture, **self.options}

    def noting(self, sentences: tuple[str, ...]) -> Plan:
        """The plan with more sentences in the comment on top."""
        return replace(self, reasons=(*self.reasons, *sentences))

    def runnable(self) -> dict[str, Plain]:
        """Everything, with placeholders for data and schedule where the plan has none."""
        stand_ins = dict(PLACEHOLDERS)
        if self.task == "sft":  # --sft reads conversations: there is no mock data of that kind
            del stand_ins["mock_data"]
            stand_ins |= {
                "sft": True,
                "data_path": "DATA_PATH",
                "tokenizer_type": "SFTTokenizer",
                "tokenizer_model": self.checkpoint,
            }
        for ours, theirs in INSTEAD.items():
            if any(name in self.options for name in theirs):
                stand_ins.pop(ours, None)
        return {**{k: v for k, v in stand_ins.items() if k not in self.options}, **self.everything}

    @property
    def world(self) -> int:
        return self.nodes * self.gpus_per_node

    @property
    def heading(self) -> str:
        """Comment lines that say what this is and why."""
        short = {short: self.options.get(name) for short, name in table()["short"].items()}
        shown = " ".join(
            f"{k.upper()}{v}" for k, v in short.items() if k in ("tp", "pp", "vpp", "cp", "ep", "etp") and v
        )
        nodes = f"{self.nodes} {'node' if self.nodes == 1 else 'nodes'}"
        where = f"{nodes} x {self.gpus_per_node} {self.gpu or 'GPUs'}"
        return "\n".join([f"{self.model or self.name}: {shown or 'DP only'} on {where}", *self.reasons])


PLACEHOLDERS: Mapping[str, Plain] = {
    "mock_data": True,
    "tokenizer_type": "NullTokenizer",
    "train_iters": 100,
    "lr": 1e-4,
    "min_lr": 1e-5,
    "split": "99,1,0",
}
"""Arguments that pretrain_gpt.py asks for and a plan does not have; to be replaced by one's own."""
DATA = ("data_path", "data_args_path", "train_data_path", "per_split_data_args_path")
INSTEAD: Mapping[str, tuple[str, ...]] = {
    "mock_data": DATA,
    "data_path": DATA,
    "split": DATA,
    "min_lr": ("lr",),
    "train_iters": ("train_samples",),
}
"""Placeholders, and options that say the same or refuse them (megatron/training/arguments.py)."""
LEFT_OUT = frozenset(
    {"ffn_widths", "has_dense_layers", "task", "world_size", "gpus_per_node", "nvlink_domain", "gpu_name"}
    | {"gpu_architecture", "compute_capability", "pipeline_dtype", "batch_p2p_comm", "order"}
)
"""Options that only rules read: no framework has a word for them."""


def plan_of(
    model: Model,
    cluster: Cluster,
    job: Job,
    layout: Layout,
    execution: Execution,
    *,
    pipeline_layout: str | None = None,
    environment: Mapping[str, str] | None = None,
    reasons: tuple[str, ...] = (),
    recipe: str | None = None,
) -> Plan:
    """The plan of a layout: every value that the frameworks have words for."""
    from meshwright.layout.rules import sources

    options: dict[str, Plain] = {}
    options |= sources.job_options(job)
    options |= sources.execution_options(execution, model)
    options |= sources.layout_options(layout)
    options |= {"hidden_dropout": job.hidden_dropout, "attention_dropout": job.attention_dropout}
    if layout.tp == 1:  # there is nothing to overlap, and the frameworks refuse it
        options["tp_comm_overlap"] = False
    if job.optimizer == "adam-precision-aware":  # the switch alone leaves the moments in fp32
        options |= {"exp_avg_dtype": "bf16", "exp_avg_sq_dtype": "bf16"}
    if model.is_moe:
        options["moe_grouped_gemm"] = execution.grouped_gemm
    if not model.is_moe:
        options.pop("expert_tensor_parallel_size", None)
        options.pop("expert_model_parallel_size", None)
    if pipeline_layout:
        options["pipeline_model_parallel_layout"] = pipeline_layout
        options.pop("virtual_pipeline_model_parallel_size", None)
    shape = architecture_of(model)
    raised = _reaching(shape, job.seq_length)
    return Plan(
        options=_kept(options, layout),
        architecture=shape | raised,
        nodes=cluster.nodes,
        gpus_per_node=cluster.gpus_per_node,
        model=model.hugging_face_id or model.name,
        gpu=cluster.gpu.name,
        environment=environment or {},
        reasons=(*reasons, *_of_shape(model, raised)),
        recipe=recipe,
        name=model.name,
        task=job.task,
        lora_rank=job.lora_rank,
    )


def _reaching(shape: Mapping[str, Plain], length: int) -> dict[str, Plain]:
    """Positions as far as the sequence: Megatron-LM refuses fewer; rotary ones cost nothing."""
    longest = shape.get("max_position_embeddings")
    return {"max_position_embeddings": length} if isinstance(longest, int) and longest < length else {}


def _of_shape(model: Model, raised: Mapping[str, Plain]) -> tuple[str, ...]:
    """What to know where weights exist already."""
    from meshwright.model.spec import Mla

    said: list[str] = []
    if raised:
        more = "" if model.rope_scaling else "; weights that exist want their scaling of rotary positions too"
        said.append(
            f"max_position_embeddings raised from {model.max_position:,} to the sequence length{more}"
        )
    scaling = model.rope_scaling
    if (
        scaling is not None
        and scaling.kind == "yarn"
        and not any(isinstance(k.mixer, Mla) for k in model.kinds)
    ):
        said.append("YaRN of ordinary attention: Megatron-LM has its arguments since 0.19")
    if model.rope_base is None and not model.learned_positions:
        said.append("the base of the rotary positions is not known here: existing weights want their own")
    return tuple(said)


def _kept(options: Mapping[str, Plain], layout: Layout) -> dict[str, Plain]:
    """Options worth writing: no empty values, nothing that says what is so anyway."""
    idle: dict[str, Plain] = {
        "optimizer_cpu_offload": False,
        "optimizer_offload_fraction": 0.0,
        "cuda_graph_impl": "none",
        "fp16": False,
        "use_megatron_fsdp": False,
        "tp_comm_overlap": False,
        "overlap_moe_expert_parallel_comm": False,
        "use_precision_aware_optimizer": False,
        "grad_reduce_in_bf16": False,
    }
    kept: dict[str, Plain] = {
        name: tuple(value) if isinstance(value, list) else value
        for name, value in options.items()
        if name not in LEFT_OUT
        and value is not None
        and value not in ([], ())
        and idle.get(name, ...) != value
    }
    if layout.cp == 1:
        kept.pop("cp_comm_type", None)
    return kept


def architecture_of(model: Model) -> dict[str, Plain]:
    """A model's shape as Megatron-LM's arguments say it; mixed kinds of layers by the largest."""
    from meshwright.layout.rules import sources
    from meshwright.model.spec import Attention, Mla, Mlp, Moe

    found: dict[str, Plain] = dict(sources.model_options(model))
    found["hidden_size"] = model.hidden
    ffns = [kind.ffn for kind in model.kinds if kind.ffn is not None]
    found["swiglu"] = any(isinstance(ffn, (Mlp, Moe)) and ffn.gated for ffn in ffns)
    if model.rope_base is not None:
        found["rotary_base"] = int(model.rope_base)
    if model.norm_epsilon is not None:
        found["layernorm_epsilon"] = model.norm_epsilon
    found["normalization"] = {"rms": "RMSNorm"}.get(model.normalization, "LayerNorm")
    for mixer in (kind.mixer for kind in model.kinds):
        if isinstance(mixer, Mla):
            found |= {
                "num_attention_heads": mixer.heads,
                "qk_head_dim": mixer.qk_nope,
                "v_head_dim": mixer.v_head,
                "qk_layernorm": True,
            }
        elif isinstance(mixer, Attention):
            found |= {"num_attention_heads": mixer.heads, "kv_channels": mixer.head_dim}
            found |= {"add_qkv_bias": mixer.qkv_bias, "qk_layernorm": mixer.qk_norm is not None}
            if mixer.kv_heads != mixer.heads:
                found |= {"group_query_attention": True, "num_query_groups": mixer.kv_heads}
    sparse = [int(model.kinds[kind].is_moe) for kind in model.pattern]
    if any(sparse) and not all(sparse):
        found["moe_layer_freq"] = tuple(sparse)
    found |= settings_of(model)
    kept: dict[str, Plain] = {
        name: value
        for name, value in found.items()
        if name not in LEFT_OUT and value is not None and value is not False and value not in ((), [])
    }
    return kept | {name: False for name in SAID_WHEN_OFF if found.get(name) is False}


SAID_WHEN_OFF = ("add_bias_linear", "yarn_correction_range_round_to_int", "bias_gelu_fusion")
"""Options of a model that are on where nobody says otherwise."""


def plan_from(reading: Reading) -> Plan:
    """What somebody's files say, as a plan that can be written in another framework's words.

    The degrees are the effective ones: an expert tensor size that one framework takes from TP and the
    next sets to 1 is written out.
    """
    from meshwright.frameworks.sane import sane, sane_launcher
    from meshwright.frameworks.view import model_of, view_of

    reading = sane_launcher(sane(reading))
    view = view_of(reading)
    options = {name: value.value for name, value in reading.options.items() if value.value is not None}
    for name in SPELLED_DIFFERENTLY:
        options.pop(name, None)
    vpp = view.options.get("virtual_pipeline_model_parallel_size")
    if isinstance(vpp, int) and vpp > 1 and "pipeline_model_parallel_layout" not in options:
        options["virtual_pipeline_model_parallel_size"] = vpp
    etp = view.options.get("expert_tensor_parallel_size")
    if view.options.get("num_moe_experts") and isinstance(etp, int):
        options["expert_tensor_parallel_size"] = etp
    if reading.framework in BF16_BY_ITSELF and not options.get("fp16"):
        options.setdefault("bf16", True)
    width = view.options.get("ffn_hidden_size")
    if "hidden_size" in options and isinstance(width, int):
        # What Megatron-LM's arguments make of the hidden size, other frameworks do not.
        options.setdefault("ffn_hidden_size", width)
    model = model_of(reading)
    shape = architecture_of(model) if model is not None else {}
    nodes, per_node = machines(reading)
    task, rank = (options.pop(name, None) for name in ("task", "lora_rank"))
    options.pop("sft", None)
    return Plan(
        options={name: value for name, value in options.items() if name not in ARCHITECTURE},
        architecture=shape | {name: value for name, value in options.items() if name in ARCHITECTURE},
        nodes=nodes,
        gpus_per_node=per_node,
        model=str(reading.model.value) if reading.model else "",
        recipe=reading.recipe,
        gpu=str(reading.gpu.value) if reading.gpu else "",
        environment={name: str(value.value) for name, value in reading.environment.items()},
        task=task if isinstance(task, str) else "pretrain",
        lora_rank=rank if isinstance(rank, int) and rank > 0 else 32,
    )


def machines(reading: Reading) -> tuple[int, int]:
    """(nodes, GPUs a node) of a reading; one node of 8 where nothing is said."""
    launcher = reading.launcher

    def number(value: Value | None) -> int | None:
        found = value.value if value is not None else None
        return found if isinstance(found, int) and not isinstance(found, bool) and found > 0 else None

    nodes, per_node, world = number(launcher.nodes), number(launcher.gpus_per_node), number(launcher.world)
    if nodes and per_node:
        return nodes, per_node
    per_node = per_node or (min(world, 8) if world else 8)
    return (-(-world // per_node) if world else nodes or 1), per_node


BF16_BY_ITSELF = frozenset({"megatron-bridge", "nemo", "nemo-rl", "verl", "slime", "torchtitan"})
"""Frameworks that train in bf16 unless they are told otherwise; Megatron-LM's arguments start from fp32."""
SPELLED_DIFFERENTLY = ("num_virtual_stages_per_pipeline_rank", "num_layers_per_virtual_pipeline_stage")
ARCHITECTURE = frozenset(
    {"num_layers", "hidden_size", "ffn_hidden_size", "num_attention_heads", "num_query_groups", "kv_channels"}
    | {"group_query_attention", "vocab_size", "max_position_embeddings", "position_embedding_type", "swiglu"}
    | {"normalization", "add_bias_linear", "add_qkv_bias", "qk_layernorm", "multi_latent_attention"}
    | {"untie_embeddings_and_output_weights", "q_lora_rank", "kv_lora_rank", "qk_head_dim", "v_head_dim"}
    | {"qk_pos_emb_head_dim", "num_moe_experts", "moe_router_topk", "moe_ffn_hidden_size", "moe_layer_freq"}
    | {"moe_shared_expert_intermediate_size", "moe_router_enable_expert_bias", "moe_router_score_function"}
    | {"moe_router_pre_softmax", "moe_router_dtype", "moe_grouped_gemm", "mtp_num_layers", "rotary_base"}
    | {"layernorm_epsilon", "attention_output_gate", *WORDS}
    | {"linear_num_key_heads", "linear_num_value_heads", "mamba_num_heads", "mamba_num_groups"}
    | {"mamba_state_dim", "mamba_head_dim", "should_pad_vocab", "make_vocab_size_divisible_by"}
)
"""Options that describe the model itself."""
