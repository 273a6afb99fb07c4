"""Plans that are written and handed to the real packages."""

from __future__ import annotations

from meshwright.cluster.parse import parse_cluster
from meshwright.frameworks.plan import Plan, plan_of
from meshwright.job.spec import Execution, Job, Recompute
from meshwright.layout.layout import Layout
from meshwright.model.catalog import find

FULL = Recompute(granularity="full", num_layers=1)
SOME = Recompute(granularity="selective", modules=("mlp", "layernorm"))

PLANS: dict[str, tuple[str, str, Job, Layout, Execution]] = {
    "dense": ("llama3-70b", "64xH100", Job(seq_length=8192, global_batch=128),
              Layout(tp=4, pp=4, vpp=5, cp=2, sp=True), Execution()),
    "dense-fp8": ("llama3-8b", "8xH100", Job(seq_length=8192, global_batch=128, precision="fp8-current"),
                  Layout(tp=2, sp=True), Execution(recompute=SOME)),
    "dense-full-recompute": ("llama3-70b", "64xB200",
                             Job(seq_length=8192, global_batch=128, precision="mxfp8"),
                             Layout(tp=2, pp=4, vpp=5, sp=True), Execution(recompute=FULL)),
    "dense-overlap": ("llama3-8b", "16xH100", Job(seq_length=8192, global_batch=128),
                      Layout(tp=2, sp=True), Execution(overlaps=frozenset({"dp", "tp"}))),
    "moe": ("qwen3-30b-a3b", "32xH100", Job(seq_length=4096, global_batch=512),
            Layout(tp=2, pp=2, vpp=2, ep=8, sp=True), Execution()),
    "moe-deepep": ("qwen3-30b-a3b", "32xH100", Job(seq_length=4096, global_batch=512),
                   Layout(tp=1, pp=2, ep=16), Execution(dispatcher="deepep")),
    "moe-nvfp4": ("qwen3-30b-a3b", "32xB200", Job(seq_length=4096, global_batch=512, precision="nvfp4"),
                  Layout(ep=8), Execution()),
    "moe-hybridep": ("qwen3-30b-a3b", "64xGB200", Job(seq_length=4096, global_batch=512),
                     Layout(ep=32), Execution(dispatcher="hybridep")),
    "mla": ("deepseek-v2-lite", "32xH100", Job(seq_length=4096, global_batch=512),
            Layout(tp=1, ep=8), Execution()),
    "graphs": ("llama3-8b", "8xB200", Job(seq_length=8192, global_batch=128),
               Layout(tp=1), Execution(cuda_graphs="full")),
    "offload": ("llama3-70b", "32xH100", Job(seq_length=8192, global_batch=128),
                Layout(tp=4, pp=4, sp=True), Execution(optimizer_offload=0.5)),
    "precise": ("llama3-70b", "64xH100",
                Job(seq_length=8192, global_batch=128, optimizer="adam-precision-aware"),
                Layout(tp=4, pp=4, sp=True), Execution()),
    "fsdp": ("llama3-8b", "16xH100", Job(seq_length=8192, global_batch=128), Layout(), Execution(fsdp=True)),
    "context": ("llama3-8b", "64xH100", Job(seq_length=131072, global_batch=16),
                Layout(tp=2, cp=8, sp=True), Execution(cp_comm="a2a")),
    "mla-big": ("deepseek-v3", "1024xH100", Job(seq_length=4096, global_batch=8192),
                Layout(tp=2, ep=64, sp=True), Execution(dispatcher="deepep")),
    "sinks-and-windows": ("gpt-oss-20b", "16xH100", Job(seq_length=4096, global_batch=128),
                          Layout(tp=2, ep=8, sp=True), Execution()),
    "stretched": ("llama-3.1-8b", "8xH100", Job(seq_length=8192, global_batch=128),
                  Layout(tp=2, sp=True), Execution()),
    "no-recipe": ("llama2-13b", "16xH100", Job(seq_length=4096, global_batch=128),
                  Layout(tp=2, pp=2, sp=True), Execution()),
}  # fmt: skip


def plan(case: str) -> Plan:
    model, gpus, job, layout, execution = PLANS[case]
    return plan_of(find(model), parse_cluster(gpus), job, layout, execution)
