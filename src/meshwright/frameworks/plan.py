"""What is written: a plan as options in Megatron's names, with the machines it runs on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from meshwright.frameworks.reading import Plain, Reading
from meshwright.frameworks.spelling import table

if TYPE_CHECKING:
    from meshwright.cluster.spec import Cluster
    from meshwright.job.spec import Execution, Job
    from meshwright.layout.layout import Layout
    from meshwright.model.spec import Model


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """One plan to write.

    options      Megatron's names; None values are left out
    model        Hugging Face id or name, for frameworks that load a model by name
    environment  variables to export
    reasons      sentences for the comment on top
    """

    options: Mapping[str, Plain]
    nodes: int = 1
    gpus_per_node: int = 8
    model: str = ""
    recipe: str | None = None
    gpu: str = ""
    environment: Mapping[str, str] = field(default_factory=dict)
    reasons: tuple[str, ...] = ()
    name: str = "train"

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
        where = f"{self.nodes} nodes x {self.gpus_per_node} {self.gpu or 'GPUs'}"
        return "\n".join([f"{self.model or self.name}: {shown or 'DP only'} on {where}", *self.reasons])


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

    options: dict[str, Plain] = dict(sources.model_options(model))
    heads = sources.head_counts(model)
    if heads:
        options["num_attention_heads"] = heads[0][0]
        if heads[0][1] != heads[0][0]:
            options |= {"group_query_attention": True, "num_query_groups": heads[0][1]}
    options["hidden_size"] = model.hidden
    options |= sources.job_options(job)
    options |= sources.execution_options(execution, model)
    options |= sources.layout_options(layout)
    if not model.is_moe:
        options.pop("expert_tensor_parallel_size", None)
        options.pop("expert_model_parallel_size", None)
    if pipeline_layout:
        options["pipeline_model_parallel_layout"] = pipeline_layout
        options.pop("virtual_pipeline_model_parallel_size", None)
    kept = {k: v for k, v in options.items() if k not in LEFT_OUT and v is not None and v != ()}
    return Plan(
        options={k: tuple(v) if isinstance(v, list) else v for k, v in kept.items()},
        nodes=cluster.nodes,
        gpus_per_node=cluster.gpus_per_node,
        model=model.hugging_face_id or model.name,
        gpu=cluster.gpu.name,
        environment=environment or {},
        reasons=reasons,
        recipe=recipe,
        name=model.name,
    )


def plan_from(reading: Reading) -> Plan:
    """What somebody's files say, as a plan that can be written in another framework's words."""
    options = {name: value.value for name, value in reading.options.items()}
    chunks = options.pop("num_virtual_stages_per_pipeline_rank", None)
    if chunks is not None:
        options.setdefault("virtual_pipeline_model_parallel_size", chunks)
    per_stage = options.pop("num_layers_per_virtual_pipeline_stage", None)
    pp, layers = options.get("pipeline_model_parallel_size", 1), options.get("num_layers")
    if isinstance(per_stage, int) and isinstance(layers, int) and isinstance(pp, int) and per_stage and pp:
        options.setdefault("virtual_pipeline_model_parallel_size", max(layers // pp // per_stage, 1))
    launcher = reading.launcher
    per_node = launcher.gpus_per_node.value if launcher.gpus_per_node else 8
    nodes = launcher.nodes.value if launcher.nodes else 1
    model = reading.model.value if reading.model else ""
    return Plan(
        options={k: v for k, v in options.items() if v is not None},
        nodes=nodes if isinstance(nodes, int) else 1,
        gpus_per_node=per_node if isinstance(per_node, int) else 8,
        model=str(model or ""),
        recipe=reading.recipe,
        gpu=str(reading.gpu.value) if reading.gpu else "",
        environment={k: str(v.value) for k, v in reading.environment.items()},
    )
