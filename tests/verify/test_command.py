"""Level 3: the guide's own command with the plan's degrees; never called a success without GPUs."""

from __future__ import annotations

import shlex

import pytest

from meshwright.layout.layout import Layout
from meshwright.model import catalog
from meshwright.verify import command
from meshwright.verify.command import on_gpus, smoke_command
from meshwright.verify.subject import Subject

GUIDE = """
python -m torch.distributed.run --nproc_per_node=4 scripts/training/run_recipe.py
  --recipe llama32_1b_pretrain_config
  model.tensor_model_parallel_size=2 model.pipeline_model_parallel_size=2 model.sequence_parallel=True
  train.train_iters=3 train.global_batch_size=8 train.micro_batch_size=1
  scheduler.lr_warmup_iters=0 validation.eval_iters=0 validation.eval_interval=0
  checkpoint.save_interval=0 logger.log_interval=1
"""


def test_the_guides_own_example() -> None:
    assert smoke_command(Layout(tp=2, pp=2, sp=True), 4) == tuple(shlex.split(GUIDE))


def test_without_gpus_the_command_is_printed_and_skipped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command, "gpus_here", lambda: 0)
    outcome = on_gpus(
        Subject(model=catalog.find("llama-3-70b"), layout=Layout(tp=8, pp=4, sp=True), world=64)
    )
    assert outcome.verdict == "skipped"
    assert "no GPU here; run: python -m torch.distributed.run --nproc_per_node=8" in outcome.why


def test_with_gpus_and_without_the_framework_it_is_skipped_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command, "gpus_here", lambda: 8)
    outcome = on_gpus(Subject(model=catalog.find("mixtral-8x7b"), layout=Layout(ep=8), world=8))
    assert outcome.verdict == "skipped"
    assert "run_recipe.py is not here" in outcome.why
    assert "model.expert_model_parallel_size=2" in outcome.evidence["command"]


@pytest.mark.parametrize(
    ("log", "status", "verdict"),
    [("bridge_pass", 0, "pass"), ("bridge_pass", 1, "fail"), ("bridge_override_missed", 0, "fail")],
)
def test_a_run_is_judged_by_the_guides_criteria(
    monkeypatch: pytest.MonkeyPatch, log: str, status: int, verdict: str
) -> None:
    from pathlib import Path

    text = (Path(__file__).parent / "data" / "logs" / f"{log}.log").read_text()
    monkeypatch.setattr(command, "gpus_here", lambda: 8)
    monkeypatch.setattr(command, "what_is_missing", lambda *_: "")
    monkeypatch.setattr(command, "execute", lambda _: (text, status))
    subject = Subject(model=catalog.find("llama-3.2-1b"), layout=Layout(tp=2, pp=2, sp=True), world=4)
    assert on_gpus(subject).verdict == verdict
