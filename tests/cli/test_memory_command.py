"""Memory in detail on the command line."""

import json

import pytest
from typer.testing import CliRunner

from meshwright.cli.main import app
from meshwright.errors import QuestionError

RUN = CliRunner()


def ask(*words: str):
    return RUN.invoke(app, list(words), env={"COLUMNS": "100"})


def test_memory_shows_peaks_host_and_a_stage_over_a_step():
    found = ask("estimate", "llama3-8b", "--gpus", "8xH100", "--pp", "2", "--memory")
    assert found.exit_code == 0
    for words in ("iteration 1", "evaluation", "checkpoint save", "Host memory", "over a step"):
        assert words in found.output
    assert "Host memory" not in ask("estimate", "llama3-8b", "--gpus", "8xH100", "--pp", "2").output


def test_what_does_not_fit_says_what_to_change():
    words = ("estimate", "llama3-70b", "--gpus", "16xH100", "--tp", "8", "--recompute", "none")
    found = ask(*words)
    assert found.exit_code == 1
    assert "What to change" in found.output
    remedies = json.loads(ask(*words, "--json").output)["remedies"]
    assert remedies[0]["verdict"] == "fits"
    assert remedies[0]["words"].startswith("--")


def test_a_remedy_typed_again_gives_the_memory_it_promised():
    words = ("estimate", "llama3-70b", "--gpus", "16xH100", "--tp", "8", "--recompute", "none", "--json")
    best = json.loads(ask(*words).output)["remedies"][0]
    changed = [word for word in words if word not in best["options"]]
    if "--recompute" in best["options"]:
        changed.remove("none")
    again = json.loads(ask(*changed, *best["words"].split()).output)
    assert again["memory"]["peak_bytes"] == pytest.approx(best["peak_bytes"], rel=0.002)


def test_what_ifs_are_options():
    base = (
        "estimate",
        "qwen3-30b-a3b",
        "--gpus",
        "16xH100",
        "--ep",
        "8",
        "--tp",
        "2",
        "--mbs",
        "1",
        "--json",
    )
    plain, uneven, longest = (
        json.loads(ask(*base, *more).output)["memory"]["peak_bytes"]
        for more in ((), ("--expert-imbalance", "2"), ("--longest-packed-sequence", "16384"))
    )
    assert uneven > plain
    assert longest > plain


@pytest.mark.parametrize("value", ["0.5", "nan", "1e300"])
def test_an_imbalance_that_cannot_be_is_a_wrong_question(value):
    found = ask("estimate", "qwen3-30b-a3b", "--gpus", "8xH100", "--expert-imbalance", value)
    assert isinstance(found.exception, QuestionError)


def test_fit_finds_the_longest_sequence_and_the_largest_micro_batch():
    base = ("fit", "llama3-8b", "--gpus", "8xH100", "--tp", "2", "--cp", "2", "--pp", "1")
    found = ask(*base, "--longest-sequence")
    assert found.exit_code == 0
    assert "Longest sequence of llama-3-8b on 8 x H100-80GB-SXM" in found.output
    capacity = json.loads(ask(*base, "--largest-micro-batch", "--json").output)["capacity"]
    assert capacity["asked"] == "micro-batch"
    assert capacity["may_fit"] >= capacity["fits"] > 0


def test_fit_of_given_gpus_says_what_it_can_be_asked():
    found = ask("fit", "llama3-8b", "--gpus", "8xH100")
    assert isinstance(found.exception, QuestionError)
    assert "--longest-sequence" in str(found.exception)


def test_fit_names_the_fewest_and_the_fewest_that_are_tight():
    found = ask("fit", "llama3-70b", "--gpu", "H100", "--seq-length", "8192", "--gbs", "96")
    assert "Fewest GPUs that train llama-3-70b: 24 x" in found.output
    assert "Tight already on 16: " in found.output


def test_reinforcement_learning_shows_its_phases():
    words = ("estimate", "qwen3-8b", "--gpus", "8xH100", "--tp", "4", "--task", "rl", "--seq-length", "8192")
    found = ask(*words)
    assert found.exit_code == 0
    for phase in ("rollout", "log-probabilities", "training", "weight sync"):
        assert phase in found.output
    apart = json.loads(ask(*words, "--apart", "--rl-offload", "none", "--json").output)
    assert apart["rl"]["colocated"] is False
    assert apart["rl"]["offloaded_bytes"] == 0
    wrong = ask(*words, "--rl-offload", "gradient")
    assert isinstance(wrong.exception, QuestionError)
    assert "gradients" in str(wrong.exception)
