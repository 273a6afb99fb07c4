"""The command line: what is printed where, and with which exit status."""

import json
import os
import resource
import subprocess
import sys
import time

import pytest


def run(*words: str, stdin: str | None = None, **env: str) -> subprocess.CompletedProcess[str]:
    code = "import sys; from meshwright.cli.main import main; main()"
    return subprocess.run(
        [sys.executable, "-c", code, *words], capture_output=True, text=True, input=stdin, timeout=120,
        env={**os.environ, "HF_HUB_OFFLINE": "1", "COLUMNS": "80", **env}, check=False,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ("plan llama3-70b --gpus 0xH100", "0 GPUs"),
        ("plan llama3-70b --gpus 64xH1000", "did you mean H100"),
        ("plan llama3-70b --gpus 64", "of which kind"),
        ("plan llama3-70b", "--gpus 64xH100"),
        ("plan lama3-70b --gpus 64xH100", "did you mean llama-3-70b"),
        ("estimate llama3-70b --gpus 8xH100 --tp -1", "--tp -1"),
        ("estimate llama3-70b --gpus 8xH100 --tp x", "--tp x"),
        ("estimate llama3-70b --gpus 8xH100 --tp 1,2", "several values"),
        ("plan llama3-70b --gpus 64xH100 --precision fp7", "did you mean fp8"),
        ("plan llama3-70b --gpus 64xA100 --precision fp8", "A100"),
        ("plan llama3-70b --gpus 64xH100 --gbs 0", "global batch size is 0"),
        ("plan llama3-70b --gpus 64xH100 --recompute-modules foo", "unknown recompute module"),
        ("plan llama3-70b --gpus 64xH100 --stack 19.01", "unknown stack"),
        ("plan llama3-70b --gpus 64xH100 --set nothing=1", "nothing"),
        ("fit llama3-70b", "--gpu H100"),
        ("fit llama3-70b --gpu H999", "unknown GPU"),
        ("estimate --from missing.json", "missing.json"),
        ("advise --params-b -3", "above 0"),
        ("advise llama3-70b --gpus 0", "at least 1"),
    ],
)
def test_a_wrong_question_gets_one_error_and_status_2(words, says):
    done = run(*words.split())
    assert done.returncode == 2, done.stdout
    assert says in done.stderr
    assert done.stderr.count("\n") <= 2
    assert "Traceback" not in done.stderr


def test_heads_that_tp_does_not_divide_are_a_no_with_status_1():
    done = run(*["estimate", "llama3-8b", "--gpus", "24xH100", "--tp", "3", "--json"])
    assert done.returncode == 1
    data = json.loads(done.stdout)
    assert not data["valid"]
    assert any("32" in f["message"] and "3" in f["message"] for f in data["findings"])


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ("not json", "JSON"),
        ("[1, 2]", "object"),
        ("{}", "model_type"),
        ('{"model_type": "llama"}', "hidden_size"),
    ],
)
def test_a_config_that_cannot_be_read_gets_one_error(tmp_path, content, says):
    path = tmp_path / "config.json"
    path.write_text(content)
    done = run("plan", str(path), "--gpus", "8xH100")
    assert done.returncode == 2
    assert says in done.stderr
    assert "Traceback" not in done.stderr


def test_a_directory_without_config_and_a_huge_file_get_one_error(tmp_path):
    done = run("plan", str(tmp_path), "--gpus", "8xH100")
    assert done.returncode == 2
    assert "config.json" in done.stderr
    huge = tmp_path / "huge.json"
    with huge.open("wb") as file:
        file.truncate(2 * 1024**3)  # sparse: takes no disk
    started = time.monotonic()
    done = run("plan", str(huge), "--gpus", "8xH100")
    assert done.returncode == 2
    assert "Traceback" not in done.stderr
    assert time.monotonic() - started < 10


def test_plan_and_estimate_agree_through_json():
    first = run(*["plan", "qwen3-30b-a3b", "--gpus", "16xH100", "--json"])
    assert first.returncode == 0, first.stderr
    again = run("estimate", "--from", "-", "--json", stdin=first.stdout)
    assert again.returncode == 0, again.stderr
    plan, estimate = json.loads(first.stdout)["plans"][0], json.loads(again.stdout)
    assert plan["time"] == estimate["time"]
    assert plan["memory"] == estimate["memory"]


def test_plans_of_a_config_file_carry_the_model_whole(tmp_path):
    config = {
        "model_type": "llama", "architectures": ["LlamaForCausalLM"],
        "hidden_size": 2048, "num_hidden_layers": 16,
        "num_attention_heads": 32, "num_key_value_heads": 8, "intermediate_size": 8192, "vocab_size": 128256,
        "tie_word_embeddings": True,
    }  # fmt: skip
    path = tmp_path / "config.json"
    path.write_text(json.dumps(config))
    first = run(*f"plan {path} --gpus 8xA100-80GB --seq-length 32768 --json".split())
    assert first.returncode == 0, first.stderr
    path.unlink()
    again = run("estimate", "--from", "-", "--json", stdin=first.stdout)
    plan = json.loads(first.stdout)["plans"][0]
    assert plan["model"]["parameters"] == 1_235_814_400  # meta-llama/Llama-3.2-1B
    assert json.loads(again.stdout)["time"] == plan["time"]


def test_the_guides_deepseek_example_cannot_start_on_256_gpus():
    done = run(*["advise", "deepseek-v3", "--gpus", "256", "--tp", "2", "--pp", "16", "--ep", "64"])
    assert done.returncode == 1
    words = " ".join(done.stdout.split())
    assert "cannot start" in words
    assert "1,024" in words or "1024" in words


def test_catalogs_list_every_model_and_gpu():
    models = json.loads(run("models", "--json").stdout)
    gpus = json.loads(run("gpus", "--json").stdout)
    assert len(models) == 128
    assert len(gpus) == 26
    assert all(row["source"] for row in models)


def test_colour_appears_only_on_a_terminal():
    assert "\x1b[" not in run("gpus").stdout


def processor_seconds(*words: str) -> float:
    """Processor time of one run: what a quiet machine takes, however busy this one is."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert run(*words).returncode == 0
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime


@pytest.mark.parametrize(
    ("limit", "words"),
    [
        (0.3, "--help"),
        (0.6, "estimate llama3-70b --gpus 64xH100 --tp 8 --pp 4"),
        (3.0, "plan llama3-70b --gpus 64xH100"),
    ],
)
def test_answers_come_quickly(limit, words):
    # cores that share their caches with other work count up to twice the time
    assert min(processor_seconds(*words.split()) for _ in range(3)) < 2 * limit
