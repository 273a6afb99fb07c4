"""What we write for Slurm, judged by Slurm."""

import subprocess
from pathlib import Path

import pytest

import meshwright as mw

pytestmark = [pytest.mark.slurm, pytest.mark.xdist_group("slurm")]


def sbatch(environment: dict[str, str], *words: str, **more: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["sbatch", *words], env=environment, capture_output=True, text=True, timeout=60, **more
    )


def written(folder: Path, model: str, gpus: str, **options: object) -> Path:
    answer = mw.estimate(model, gpus, mw.Options(**options))
    path = folder / "train.sbatch"
    path.write_text(mw.write(answer, "slurm")["train.sbatch"])
    return path


@pytest.mark.parametrize(
    ("nodes", "model", "options"),
    [
        (1, "llama3-8b", {"tp": 2}),
        (8, "llama3-70b", {"tp": 4, "pp": 4, "cp": 2}),
        (32, "mixtral-8x7b", {"tp": 2, "pp": 4, "ep": 8}),
        (128, "llama3-70b", {"tp": 8, "pp": 4}),
    ],
)
def test_slurm_accepts_the_scripts_we_write(slurm, tmp_path, nodes, model, options):
    path = written(tmp_path, model, f"{nodes}x8xH100", **options)
    answer = sbatch(slurm, "--test-only", "--partition=cloud", str(path))
    assert answer.returncode == 0, answer.stderr
    chosen = "n1" if nodes == 1 else f"n[1-{nodes}]"
    assert f"on nodes {chosen} in partition cloud" in answer.stderr


def test_slurm_refuses_more_nodes_than_it_has(slurm, tmp_path):
    path = written(tmp_path, "llama3-70b", "200x8xH100", tp=8, pp=8, global_batch=400)
    answer = sbatch(slurm, "--test-only", "--partition=cloud", str(path))
    assert answer.returncode != 0
    assert "node configuration is not available" in answer.stderr


def test_a_written_script_starts_torchrun_once_on_a_node_with_all_its_gpus(slurm, tmp_path):
    path = written(tmp_path, "llama3-8b", "8xH100", tp=2)
    stub = tmp_path / "torchrun"
    stub.write_text('#!/bin/bash\necho "gpus $SLURM_GPUS_ON_NODE"\nprintf "%s\\n" "$@"\n')
    stub.chmod(0o755)
    environment = {**slurm, "PATH": f"{tmp_path}:{slurm['PATH']}"}
    answer = sbatch(environment, "--wait", "--output=run.log", str(path), cwd=tmp_path)
    log = (tmp_path / "run.log").read_text()
    assert answer.returncode == 0, answer.stderr + log
    assert log.splitlines().count("gpus 8") == 1
    assert {"--nnodes=1", "--nproc-per-node=8"} <= set(log.split())
    assert "--tensor-model-parallel-size\n2\n" in log
