"""`meshwright check`: the guide's own command, formats and exit statuses."""

import json
import os
import subprocess
import sys

GUIDE = """
CUDA_VISIBLE_DEVICES=0,1,2,3 uv run python -m torch.distributed.run --nproc_per_node=4 \\
  scripts/training/run_recipe.py \\
  --recipe llama32_1b_pretrain_config \\
  model.tensor_model_parallel_size=2 \\
  model.pipeline_model_parallel_size=2 \\
  model.sequence_parallel=True \\
  train.train_iters=3 train.global_batch_size=8 train.micro_batch_size=1 \\
  scheduler.lr_warmup_iters=0 \\
  validation.eval_iters=0 validation.eval_interval=0 \\
  checkpoint.save_interval=0 \\
  logger.log_interval=1
"""
BROKEN = "torchrun --nproc_per_node=8 pretrain_gpt.py --tensor-model-parallel-size 3 --num-attention-heads 32"


def run(*words: str, cwd=None) -> subprocess.CompletedProcess[str]:
    code = "from meshwright.cli.main import main; main()"
    return subprocess.run(
        [sys.executable, "-c", code, *words], capture_output=True, text=True, timeout=60, cwd=cwd,
        env={**os.environ, "HF_HUB_OFFLINE": "1"}, check=False,
    )  # fmt: skip


def test_the_guides_own_verification_command_is_fine(tmp_path):
    # the guide: TP=2, PP=2, DP=1, 4 ranks; a global batch of 8 at micro-batch 1 is 8 micro-batches
    script = tmp_path / "verify.sh"
    script.write_text(GUIDE)
    done = run("check", str(script), "--json")
    assert done.returncode == 0, done.stdout + done.stderr
    data = json.loads(done.stdout)
    assert data["verdict"] == "ok"
    layout = data["layout"]
    assert (layout["tp"], layout["pp"], layout["dp"], layout["num_microbatches"]) == (2, 2, 1, 8)


def test_a_live_command_is_read_after_two_dashes():
    done = run("check", "--json", "--", *BROKEN.split())
    assert done.returncode == 1
    rules = {finding["rule"] for finding in json.loads(done.stdout)["findings"]}
    assert {"world-divides-dense-grid", "tp-divides-heads"} <= rules


def test_a_script_is_never_run(tmp_path):
    script = tmp_path / "evil.sh"
    script.write_text(f"touch {tmp_path}/ran\nX=$(touch {tmp_path}/ran2)\n{BROKEN}\n")
    run("check", str(script), cwd=tmp_path)
    assert not (tmp_path / "ran").exists()
    assert not (tmp_path / "ran2").exists()


def test_formats_for_machines(tmp_path):
    script = tmp_path / "train.sh"
    script.write_text(BROKEN)
    sarif = json.loads(run("check", str(script), "--format", "sarif").stdout)
    assert sarif["version"] == "2.1.0"
    assert sarif["runs"][0]["results"]
    assert run("check", str(script), "--format", "github").stdout.startswith("::error")


def test_wrong_questions_end_with_2(tmp_path):
    for words in (
        ["check"],
        ["check", str(tmp_path / "missing.sh")],
        ["check", str(tmp_path), "--env", "NOVALUE"],
        ["check", str(tmp_path), "--arg", "x=1"],
        ["check", str(tmp_path), "--format", "xml"],
    ):
        done = run(*words)
        assert done.returncode == 2, words
        assert "error: " in done.stderr
        assert "Traceback" not in done.stderr
