"""Predictions for a table of runs."""

import csv
from pathlib import Path

import pytest

from meshwright.api.batch import COLUMNS, write_batch
from meshwright.errors import QuestionError

RUNS = """\
id,model,gpu,gpus,precision,gbs,mbs,seq_len,tp,pp,cp,vp,ep,framework,task
good,Llama3 70b,H100,64,FP8,128,1,8192,4,8,1,5,,megatron-bridge,pretrain
impossible,DeepSeek-V3,H100,256,BF16,2048,1,4096,2,16,1,1,64,megatron-bridge,pretrain
unknown,No Such Model 9B,H100,8,BF16,64,1,4096,1,1,1,1,,megatron-bridge,pretrain
"""


@pytest.fixture
def predicted(tmp_path: Path) -> dict[str, dict[str, str]]:
    runs, out = tmp_path / "runs.csv", tmp_path / "out.csv"
    runs.write_text(RUNS)
    assert write_batch(runs, out) == 3
    with out.open() as file:
        rows = list(csv.DictReader(file))
    assert list(rows[0]) == list(COLUMNS)
    return {row["id"]: row for row in rows}


def test_a_published_run_is_valid_fits_and_lands_near_its_measured_rate(predicted):
    # Megatron Bridge 25.09: Llama3-70B, 64 H100, FP8, TP4 PP8 VP5, GBS 128: 1,619 tokens/s/GPU measured
    row = predicted["good"]
    assert row["valid"] == "True"
    assert row["verdict"] != "does-not-fit"
    assert float(row["tokens_per_second_per_gpu"]) == pytest.approx(1619, rel=0.35)
    assert float(row["low_seconds"]) < float(row["step_seconds"]) < float(row["high_seconds"])
    assert float(row["last_stage_allocated_gib"]) <= float(row["peak_allocated_gib"])


def test_rows_that_cannot_run_or_be_read_say_why(predicted):
    assert predicted["impossible"]["valid"] == "False"
    assert "1024" in predicted["impossible"]["why_not"].replace(",", "")
    assert "No Such Model" in predicted["unknown"]["why_not"]


def test_a_table_that_is_none_is_refused(tmp_path):
    with pytest.raises(QuestionError):
        write_batch(tmp_path / "missing.csv", tmp_path / "out.csv")


def test_a_run_that_states_no_layout_takes_a_plans_and_says_so(tmp_path):
    # MLPerf Training 4.1, Llama 2 70B LoRA on 8 H100, batch 8, sequence 8192: 3.7 s a step in the median
    runs, out = tmp_path / "runs.csv", tmp_path / "out.csv"
    runs.write_text(
        "id,model,gpu,gpus,precision,gbs,seq_len,framework,task,release\n"
        "lora,Llama 2 70B LoRA (MLPerf),H100,8,?,8,8192,nemo,lora,v4.1\n"
    )
    assert write_batch(runs, out) == 1
    with out.open() as file:
        (row,) = csv.DictReader(file)
    assert row["valid"] == "True"
    assert row["assumed"].startswith("layout ")
    assert float(row["step_seconds"]) == pytest.approx(3.7, rel=0.3)


def test_interleaving_that_a_row_of_nemo_leaves_open_is_the_fastest_and_is_said(tmp_path):
    """Nemotron-4 340B on 2,048 H100, TP8 PP8 (dgxc-benchmarking v25.04): 4.43 s a step, VPP not stated."""
    runs, out = tmp_path / "runs.csv", tmp_path / "out.csv"
    runs.write_text(
        "id,model,gpu,gpus,precision,gbs,mbs,seq_len,tp,pp,cp,framework,task\n"
        "nemotron,Nemotron4 340b,H100,2048,BF16,512,1,4096,8,8,1,nemo,pretrain\n"
        "plain,Nemotron4 340b,H100,2048,BF16,512,1,4096,8,8,1,megatron-lm,pretrain\n"
    )
    assert write_batch(runs, out) == 2
    with out.open() as file:
        open_, plain = csv.DictReader(file)
    assert open_["assumed"] == "layout vpp=12: not stated by the row"
    assert float(open_["step_seconds"]) == pytest.approx(4.43, rel=0.15)
    assert plain["assumed"] == ""
