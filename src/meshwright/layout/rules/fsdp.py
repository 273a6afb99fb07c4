"""Rules of fully sharded data parallelism: torch FSDP2 and Megatron FSDP."""

from __future__ import annotations

from meshwright.layout.rules.rule import ARGUMENTS, BRIDGE, LM, LM_BRIDGE, Rule, given
from meshwright.layout.rules.view import View

MFSDP = given(use_megatron_fsdp=True, ckpt_format="fsdp_dtensor", optimizer="adam")


def _torch_fault(v: View) -> str:
    faults = {
        f"pp={v.pp}": v.pp > 1,
        f"ep={v.ep}": v.ep > 1,
        "the distributed optimizer": v.on("use_distributed_optimizer"),
        "fused gradient accumulation": v.on("gradient_accumulation_fusion"),
        f"the checkpoint format {v.get('ckpt_format')}": v.get("ckpt_format")
        not in ("torch_dist", "torch_dcp"),
        "tied embeddings": v.get("untie_embeddings_and_output_weights") is False,
        "fp16": v.on("fp16"),
        f"torch {v.get('torch_version')}": v.get("torch_version") is not None
        and v.release("torch_version") < (2, 4),
    }
    return ", ".join(name for name, wrong in faults.items() if wrong)


TORCH = Rule(
    id="torch-fsdp2-conditions",
    aliases=("R215",),
    area="fsdp",
    must="torch FSDP2 has PP 1, EP 1, no distributed optimizer, no fused accumulation, torch_dist or "
    "torch_dcp "
    "checkpoints, untied embeddings, no fp16, torch 2.4",
    why="It shards everything itself.",
    severity="error",
    enforced_by=LM,
    source=ARGUMENTS,
    applies=lambda v: v.on("use_torch_fsdp2"),
    holds=lambda v: not _torch_fault(v),
    message=lambda v: f"torch FSDP2 does not work with {_torch_fault(v)}",
    fix="drop what it does not work with (--no-gradient-accumulation-fusion, ...)",
    breaks=given(use_torch_fsdp2=True, layers=32, pp=2, gradient_accumulation_fusion=False),
    passes=given(use_torch_fsdp2=True, layers=32, tp=2, gradient_accumulation_fusion=False),
)

DCP = Rule(
    id="torch-dcp-needs-fsdp2",
    aliases=("R216",),
    area="fsdp",
    must="torch_dcp checkpoints are for torch FSDP2 with TP 1 and PP 1",
    why="They hold torch's own sharded tensors.",
    severity="error",
    enforced_by=LM,
    source=ARGUMENTS,
    applies=lambda v: v.get("ckpt_format") == "torch_dcp",
    holds=lambda v: v.on("use_torch_fsdp2") and v.tp == 1 and v.pp == 1,
    message="torch_dcp checkpoints with tp={tp}, pp={pp}, torch FSDP2 {use_torch_fsdp2}",
    fix="--ckpt-format torch_dist",
    breaks=given(use_torch_fsdp2=True, tp=2, ckpt_format="torch_dcp", gradient_accumulation_fusion=False),
    passes=given(use_torch_fsdp2=True, tp=1, ckpt_format="torch_dcp", gradient_accumulation_fusion=False),
)


def _megatron_fault(v: View) -> str:
    faults = {
        f"the checkpoint format {v.get('ckpt_format')}": v.get("ckpt_format") != "fsdp_dtensor",
        f"the {v['optimizer']} optimizer": v["optimizer"] not in ("sgd", "adam"),
        "single grouped weights": v.on("moe_single_grouped_weight") or v.on("moe_single_grouped_bias"),
    }
    return ", ".join(name for name, wrong in faults.items() if wrong)


MEGATRON = Rule(
    id="megatron-fsdp-conditions",
    aliases=("R217",),
    area="fsdp",
    must="Megatron FSDP saves fsdp_dtensor, steps with SGD or Adam, and groups no expert weights",
    why="Its buffers hold flat shards.",
    severity="error",
    enforced_by=LM,
    since="2025-09-01",
    source=ARGUMENTS,
    mask=True,
    per_execution=True,
    applies=lambda v: v.on("use_megatron_fsdp"),
    holds=lambda v: not _megatron_fault(v),
    message=lambda v: f"Megatron FSDP does not work with {_megatron_fault(v)}",
    fix="--ckpt-format fsdp_dtensor --optimizer adam",
    breaks=given(use_megatron_fsdp=True, ckpt_format="torch_dist"),
    passes=MFSDP,
)

SWITCHES = Rule(
    id="megatron-fsdp-switches",
    aliases=("R218",),
    area="fsdp",
    must="Megatron FSDP is used with the distributed optimizer and without reuse of the gradient buffer",
    why="It switches the first on and the second off; with nccl_ub also double buffers and manual "
    "registration on.",
    severity="warn",
    enforced_by=LM_BRIDGE,
    effect="changes",
    source=f"{ARGUMENTS}; Megatron Bridge training/config.py",
    applies=lambda v: v.on("use_megatron_fsdp"),
    holds=lambda v: (
        v.said.get("use_distributed_optimizer") is not False
        and not v.said.get("reuse_grad_buf_for_mxfp8_param_ag")
    ),
    message="Megatron FSDP switches the distributed optimizer on and reuse of the gradient buffer off",
    fix="--use-distributed-optimizer, no --reuse-grad-buf-for-mxfp8-param-ag",
    breaks=given(**MFSDP, use_distributed_optimizer=False),
    passes=given(**MFSDP, use_distributed_optimizer=True),
)

V2 = Rule(
    id="megatron-fsdp-v2-no-distributed-optimizer",
    aliases=("R219",),
    area="fsdp",
    must="Megatron FSDP v2 is used without the distributed optimizer",
    why="It shards the state itself.",
    severity="error",
    enforced_by=LM,
    since="2026-08-11",
    source=ARGUMENTS,
    applies=lambda v: v.on("use_megatron_fsdp_v2"),
    holds=lambda v: not v.on("use_distributed_optimizer"),
    message="Megatron FSDP v2 with the distributed optimizer",
    fix="drop --use-distributed-optimizer",
    breaks=given(use_megatron_fsdp_v2=True, use_distributed_optimizer=True),
    passes=given(use_megatron_fsdp_v2=True, use_distributed_optimizer=False),
)


def _bridge_fault(v: View) -> str:
    if v.on("use_torch_fsdp2"):
        return "torch FSDP2"
    if v.on("use_tp_pp_dp_mapping"):
        return "use_tp_pp_dp_mapping"
    saves = v.gave("save") or v.gave("load")
    return f"the checkpoint format {v['ckpt_format']}" if saves and v["ckpt_format"] != "fsdp_dtensor" else ""


BRIDGE_ONE = Rule(
    id="bridge-megatron-fsdp-conditions",
    aliases=("R220",),
    area="fsdp",
    must="in Bridge, Megatron FSDP excludes torch FSDP2 and use_tp_pp_dp_mapping, and saves fsdp_dtensor",
    why="Only one of them can own the parameters.",
    severity="error",
    enforced_by=BRIDGE,
    source="Megatron Bridge training/config.py, _validate_and_apply_megatron_fsdp_v1_configs",
    applies=lambda v: v.on("use_megatron_fsdp"),
    holds=lambda v: not _bridge_fault(v),
    message=lambda v: f"Megatron FSDP does not work with {_bridge_fault(v)}",
    fix="keep one of the two; checkpoint.ckpt_format=fsdp_dtensor",
    breaks=given(**MFSDP, use_torch_fsdp2=True),
    passes=MFSDP,
)


def _v2_fault(v: View) -> str:
    faults = {
        f"tp={v.tp}": v.tp > 1,
        f"pp={v.pp}": v.pp > 1,
        f"cp={v.cp}": v.cp > 1,
        f"ep={v.ep}": v.ep > 1,
        "experts": v.is_moe,
        "VPP": v.vpp > 1,
        "fp16": v.on("fp16"),
        "fp8": bool(v.get("fp8")),
        "several optimizer instances": v["num_distributed_optimizer_instances"] > 1,
        "gradient clipping": bool(v.get("clip_grad")),
        "CUDA graphs": v["cuda_graph_impl"] != "none",
        "checkpoints": v.gave("save") or v.gave("load"),
    }
    return ", ".join(name for name, wrong in faults.items() if wrong)


BRIDGE_V2 = Rule(
    id="bridge-fsdp-v2-conditions",
    aliases=("R221",),
    area="fsdp",
    must="in Bridge, Megatron FSDP v2 is dense, bf16 and data-parallel only, without checkpoints, clipping "
    "or graphs",
    why="It is new there.",
    severity="error",
    enforced_by=BRIDGE,
    since="2026-08-11",
    source="Megatron Bridge training/config.py, _validate_and_apply_megatron_fsdp_v2_configs",
    applies=lambda v: v.on("use_megatron_fsdp_v2"),
    holds=lambda v: not _v2_fault(v),
    message=lambda v: f"Megatron FSDP v2 does not work with {_v2_fault(v)}",
    fix="use Megatron FSDP v1",
    breaks=given(use_megatron_fsdp_v2=True, bf16=True, tp=2),
    passes=given(use_megatron_fsdp_v2=True, bf16=True),
)

REGISTRATION = Rule(
    id="fsdp-manual-registration",
    aliases=("R222",),
    area="fsdp",
    must="fsdp_manual_registration needs Megatron FSDP and nccl_ub",
    why="It registers the user buffers of NCCL.",
    severity="error",
    enforced_by=LM,
    source=ARGUMENTS,
    applies=lambda v: v.on("fsdp_manual_registration"),
    holds=lambda v: v.on("use_megatron_fsdp") and v.on("nccl_ub"),
    message="fsdp_manual_registration with Megatron FSDP {use_megatron_fsdp}, nccl_ub {nccl_ub}",
    fix="--nccl-ub, or drop it",
    breaks=given(**MFSDP, fsdp_manual_registration=True),
    passes=given(**MFSDP, fsdp_manual_registration=True, nccl_ub=True),
)

META = Rule(
    id="fsdp-meta-device",
    aliases=("R223",),
    area="fsdp",
    must="initialisation on the meta device is used with a sharding strategy",
    why="With no_shard every rank holds all weights anyway.",
    severity="error",
    enforced_by=LM,
    source=ARGUMENTS,
    applies=lambda v: v.on("use_megatron_fsdp") and v.on("init_model_with_meta_device"),
    holds=lambda v: v.get("data_parallel_sharding_strategy", "no_shard") != "no_shard",
    message="init_model_with_meta_device with data_parallel_sharding_strategy "
    "{data_parallel_sharding_strategy}",
    fix="--data-parallel-sharding-strategy optim_grads_params",
    breaks=given(**MFSDP, init_model_with_meta_device=True, data_parallel_sharding_strategy="no_shard"),
    passes=given(
        **MFSDP, init_model_with_meta_device=True, data_parallel_sharding_strategy="optim_grads_params"
    ),
)

STRATEGY = Rule(
    id="sharding-strategy-needs-fsdp",
    area="fsdp",
    must="data_parallel_sharding_strategy is given with Megatron FSDP",
    why="Without it the option is ignored.",
    severity="warn",
    enforced_by=LM_BRIDGE,
    effect="changes",
    source="megatron/core/distributed/distributed_data_parallel_config.py",
    applies=lambda v: v.said.get("data_parallel_sharding_strategy") not in (None, "no_shard"),
    holds=lambda v: v.on("use_megatron_fsdp") or v.on("use_megatron_fsdp_v2"),
    message="data_parallel_sharding_strategy {data_parallel_sharding_strategy} is ignored without Megatron "
    "FSDP",
    fix="--use-megatron-fsdp, or drop the strategy",
    breaks=given(data_parallel_sharding_strategy="optim_grads_params"),
    passes=given(**MFSDP, data_parallel_sharding_strategy="optim_grads_params"),
)

DECOUPLED = Rule(
    id="bridge-fsdp-decoupled-grads",
    aliases=("R224",),
    area="fsdp",
    must="Megatron FSDP in Bridge is used without average_in_collective",
    why="Bridge switches it off (and decoupled gradients on with the precision-aware optimizer).",
    severity="warn",
    enforced_by=BRIDGE,
    effect="changes",
    source="Megatron Bridge training/config.py, _validate_and_apply_megatron_fsdp_v1_configs",
    applies=lambda v: v.on("use_megatron_fsdp"),
    holds=lambda v: not v.on("average_in_collective"),
    message="average_in_collective is switched off with Megatron FSDP",
    fix="ddp.average_in_collective=false",
    breaks=given(**MFSDP, average_in_collective=True),
    passes=MFSDP,
)

RULES = (
    TORCH,
    DCP,
    MEGATRON,
    SWITCHES,
    V2,
    BRIDGE_ONE,
    BRIDGE_V2,
    REGISTRATION,
    META,
    STRATEGY,
    DECOUPLED,
)
