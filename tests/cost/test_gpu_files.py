"""A machine is measured, kept as a GPU file, and planned with; broken files are refused with their reason."""

import json
import sys

import pytest
from typer.testing import CliRunner

from meshwright.cli.main import app
from meshwright.cluster.catalog import find_gpu
from meshwright.cluster.gpu_file import load_gpu
from meshwright.cluster.parse import parse_cluster
from meshwright.cost.kernels import kernels_of
from meshwright.errors import QuestionError
from meshwright.facts import load_json

GB = 1e9


def run(*words: str):
    return CliRunner().invoke(app, list(words))


def h100_file(tmp_path, **changes):
    """A file of an H100 whose matrix products reach half of what ships, sustained."""
    gpu = find_gpu("H100")
    kernels = json.loads(json.dumps(load_json("meshwright.cost", "measured.json")["gpus"]["H100"]))
    kernels["gemm"]["bf16"]["e0"] /= 2
    kernels |= {"sustained": True, "memory_bound": 0.6}
    described = {"based_on": "H100", "name": gpu.name, "usable_memory_gib": 79.0}
    content = {"meshwright": "gpu", "version": 1, "source": "a test", "gpu": described, "kernels": kernels}
    path = tmp_path / "my-gpu.json"
    path.write_text(json.dumps(content | changes))
    return path


def test_a_gpu_file_is_a_kind_of_gpu(tmp_path):
    path = h100_file(tmp_path)
    cluster = parse_cluster(f"2x8x{path}")
    assert (cluster.world, cluster.gpu.name) == (16, "H100-80GB-SXM")
    assert kernels_of(cluster.gpu, {cluster.gpu.name: cluster.gpu.kernels}).sustained


def test_measured_kernels_change_the_step_and_travel_with_the_answer(tmp_path):
    import meshwright as mw

    options = mw.Options(global_batch=64)
    plain = mw.estimate("llama3-8b", "8xH100", options)
    slow = mw.estimate("llama3-8b", f"8x{h100_file(tmp_path)}", options)
    assert slow.time.terms["gemm"] > 1.5 * plain.time.terms["gemm"]
    again = mw.estimate_again(json.loads(json.dumps(slow.as_dict())))
    assert again.time.step_seconds == pytest.approx(slow.time.step_seconds)


def test_a_cluster_file_may_name_a_gpu_file_beside_it(tmp_path):
    h100_file(tmp_path)
    path = tmp_path / "cluster.yaml"
    path.write_text("nodes: 4\ngpu: ./my-gpu.json\n")
    assert parse_cluster(str(path)).gpu.kernels is not None


@pytest.mark.parametrize(
    "changes",
    [
        {"meshwright": "plan"},
        {"version": 99},
        {"gpu": {"based_on": "H100", "speed": 3}},
        {"gpu": "no such gpu"},
        {"kernels": 3},
        {"kernels": {"sm": 1}},
        {"kernels": {"sm": float("nan")}},
        {"kernels": {"sm": -1}},
    ],
)
def test_files_that_are_broken_say_why(tmp_path, changes):
    with pytest.raises(QuestionError):
        load_gpu(h100_file(tmp_path, **changes))


@pytest.mark.parametrize("text", ["", "[", "3", "[]", "[" * 100_000, '{"meshwright": "gpu"}'])
def test_files_that_are_something_else_are_refused(tmp_path, text):
    path = tmp_path / "gpu.json"
    path.write_text(text)
    with pytest.raises(QuestionError, match=r"gpu\.json"):
        parse_cluster(f"8x{path}")


def test_a_file_that_is_not_there_is_named():
    with pytest.raises(QuestionError, match=r"no file none\.json"):
        parse_cluster("8x./none.json")


def test_without_torch_the_command_says_what_to_install(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "torch", None)
    done = run("calibrate", "hardware", "--device", "cpu", "--out", str(tmp_path / "x.json"))
    assert isinstance(done.exception, QuestionError)
    assert "pip install torch" in str(done.exception)


@pytest.mark.parametrize(
    "words",
    [("--device", "tpu"), ("--device", "cpu", "--ranks", "1000"), ("--device", "cpu", "--gpu", "H1000")],
)
def test_questions_about_no_machine_are_refused(words, tmp_path):
    pytest.importorskip("torch")
    done = run("calibrate", "hardware", "--out", str(tmp_path / "x.json"), *words)
    assert isinstance(done.exception, QuestionError)


def test_this_machine_is_measured_kept_and_planned_with(tmp_path):
    pytest.importorskip("torch")
    path = tmp_path / "cpu.json"
    done = run("calibrate", "hardware", "--device", "cpu", "--ranks", "2", "--out", str(path), "--json")
    assert done.exit_code == 0, done.output
    data = json.loads(done.stdout)
    assert {row["kind"] for row in data["measured"]["collectives"]} == {"all_gather", "all_reduce"}
    assert data["kernels"]["gemm"]["bf16"]["e0"] <= 1.0
    answer = run("estimate", "llama-3.2-1b", "--gpus", f"2x{path}", "--tp", "2", "--json")
    told = json.loads(answer.stdout)
    assert told["cluster"]["gpu"] == "cpu-measured"
    assert 0 < told["time"]["mfu"] <= 1.0
    assert told["time"]["terms"]["tp"] > 0


def test_what_was_not_measured_keeps_the_factors_of_bursts():
    """Only bf16 is measured: fp8 products of the relative are bursts and stay slowed by the calibration."""
    from meshwright.cost.kernel_fit import completed

    relative = load_json("meshwright.cost", "measured.json")["gpus"]["H100"]
    row = completed({"gemm": {"bf16": relative["gemm"]["bf16"]}, "sustained": True}, relative, 1.0)
    kernels = kernels_of(find_gpu("H100"), {find_gpu("H100").name: row})
    assert (kernels.burst("bf16"), kernels.burst("fp8")) == (False, True)
