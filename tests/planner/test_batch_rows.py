"""Tables of runs: columns, settings, arguments of Megatron-LM, and rows that make no sense."""

import json

import pytest

from meshwright.cost.memory import memory
from meshwright.cost.stages import all_stages
from meshwright.errors import QuestionError
from meshwright.model.catalog import find
from meshwright.planner.arguments import frequency, setup_from_arguments
from meshwright.planner.batch import Run, Unreadable, read_batch, read_run, with_layers

LLAMA = {
    "id": "a", "model": "LLAMA3_70B", "gpu": "H100", "gpus": "64", "precision": "FP8", "gbs": "128",
    "mbs": "1", "seq_len": "8192", "tp": "4", "pp": "8", "cp": "1", "vp": "5", "framework": "megatron-bridge",
}  # fmt: skip
GPT = {
    "--num-layers": 12, "--hidden-size": 512, "--num-attention-heads": 8, "--seq-length": 1024,
    "--bf16": True, "--micro-batch-size": 4, "--global-batch-size": 32, "--max-position-embeddings": 1024,
    "--tensor-model-parallel-size": 1, "--pipeline-model-parallel-size": 4, "--deterministic-mode": True,
    "--num-layers-per-virtual-pipeline-stage": 1, "--attention-backend": "unfused",
    "--no-gradient-accumulation-fusion": True, "--transformer-impl": "transformer_engine",
}  # fmt: skip


def test_columns_of_published_runs():
    run = read_run(LLAMA)
    assert run.question.model.name == "llama-3-70b"
    assert (run.layout.tp, run.layout.pp, run.layout.vpp, run.layout.sp) == (4, 8, 5, True)
    assert run.question.job.precision == "fp8-current"
    assert run.table().num_microbatches[0] == 128 // 2


def test_settings_are_joined_by_id(tmp_path):
    (tmp_path / "runs.csv").write_text(
        ",".join(LLAMA) + "\n" + ",".join(LLAMA.values()) + "\n", encoding="utf-8"
    )
    (tmp_path / "settings.csv").write_text(
        "id,recompute_granularity,recompute_modules,mixed_precision_preset\n"
        'a,selective,"[""layernorm"", ""mlp""]",bf16_with_mxfp8_mixed()\n',
        encoding="utf-8",
    )
    (run,) = read_batch(tmp_path / "runs.csv", tmp_path / "settings.csv")
    assert isinstance(run, Run)
    assert run.question.job.precision == "mxfp8"
    assert run.execution.recompute.modules == ("layernorm", "mlp")


def test_layers_cut_or_grow_the_catalog_model():
    run = read_run({**LLAMA, "layers": "40"})
    assert run.question.model.num_layers == 40
    grown = with_layers(find("deepseek-v3"), 64)
    assert grown.pattern[:3] == find("deepseek-v3").pattern[:3]
    assert grown.num_layers == 64


def test_sizes_replace_the_catalog_model():
    row = {"model": "mine", "gpu": "H100", "gpus": "8", "layers": "12", "hidden": "1024", "heads": "16",
           "query_groups": "4", "ffn": "4096", "vocab": "32000", "tp": "2", "seq_len": "2048"}  # fmt: skip
    model = read_run(row).question.model
    attention, mlp = model.kinds[0].mixer, model.kinds[0].ffn
    assert (model.hidden, model.num_layers, model.vocab_size) == (1024, 12, 32000)
    assert (attention.heads, attention.kv_heads, mlp.ffn, mlp.gated) == (16, 4, 4096, True)


def test_arguments_of_megatron_lm_say_everything():
    """12 layers, one a chunk on 4 stages: 3 chunks a rank; GPT-2's vocabulary, learned positions, biases."""
    run = read_run({"id": "ci", "model": "gpt", "gpu": "H100", "gpus": "8", "args_json": json.dumps(GPT)})
    model, job = run.question.model, run.question.job
    assert (run.layout.pp, run.layout.vpp) == (4, 3)
    assert (model.vocab_size, model.learned_positions, model.tied) == (50257, 1024, True)
    assert (job.hidden_dropout, job.attention_dropout) == (0.1, 0.1)
    assert not run.execution.distributed_optimizer
    assert run.execution.deterministic


def test_a_test_run_of_megatron_lm_is_met_within_one_per_cent():
    """gpt3_mcore_te_tp1_pp4_vp1 on H100: 4,161,191,424 bytes at most on the last rank."""
    run = read_run({"id": "ci", "model": "gpt", "gpu": "H100", "gpus": "8", "args_json": json.dumps(GPT)})
    table = run.table()
    used = memory(run.question, table, all_stages(table.splits))
    assert used.allocated[0, 3] == pytest.approx(4161191424, rel=0.01)


def test_unsaid_recompute_is_the_least_that_fits():
    plain = read_run({**LLAMA, "precision": "BF16", "tp": "8"})
    assert plain.execution.recompute.granularity == "none"
    full = read_run({**LLAMA, "precision": "BF16", "gbs": "256", "seq_len": "32768"})
    assert full.execution.recompute.granularity == "full"


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"model": ""}, "names no model"),
        ({"model": "no-such-model"}, "no model 'no-such-model'"),
        ({"gpu": "Z9000"}, "unknown GPU"),
        ({"tp": "x"}, "column tp is 'x'"),
        ({"tp": "", "pp": "", "cp": ""}, "states no layout"),
        ({"args_json": "{"}, "not JSON"),
    ],
)
def test_rows_that_make_no_sense_say_why(change, says):
    with pytest.raises(QuestionError, match=says):
        read_run({**LLAMA, **change})


def test_a_bad_row_does_not_stop_the_others(tmp_path):
    path = tmp_path / "runs.csv"
    lines = [",".join(LLAMA), ",".join(LLAMA.values()), ",".join({**LLAMA, "gpu": "Z9000"}.values())]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    good, bad = read_batch(path)
    assert isinstance(good, Run)
    assert isinstance(bad, Unreadable)
    assert "Z9000" in bad.why


@pytest.mark.parametrize(
    ("text", "layers", "pattern"),
    [
        ("1", 4, (1, 1, 1, 1)),
        ("2", 4, (1, 0, 1, 0)),
        ("([0]*1+[1]*3)", 4, (0, 1, 1, 1)),
        ("[0,1,1]", 3, (0, 1, 1)),
    ],
)
def test_layer_frequencies(text, layers, pattern):
    """Source: megatron/training/arguments.py, --moe-layer-freq."""
    assert frequency(text, layers) == pattern


def test_an_encoder_decoder_has_both_sides():
    """T5 with 12 + 12 layers of 768: 223 million parameters, cross-attention and shorter decoder included."""
    args = {"--encoder-num-layers": 12, "--decoder-num-layers": 12, "--hidden-size": 768, "--bf16": True,
            "--num-attention-heads": 12, "--kv-channels": 64, "--ffn-hidden-size": 3072,
            "--encoder-seq-length": 512, "--decoder-seq-length": 128, "--max-position-embeddings": 512,
            "--vocab-extra-ids": 100}  # fmt: skip
    model = setup_from_arguments(args).model
    assert model.num_layers == 12 + 3 * 12
    assert model.loss_share == 0.25


def test_mlperf_rows_run_in_the_precision_of_their_round():
    """Rounds 2.1 to 5.0 train in FP8, 5.1 in FP4 on Blackwell; what a row says itself comes first."""
    row = {**LLAMA, "model": "Llama 2 70B LoRA (MLPerf)", "precision": "?", "framework": "nemo"}
    found = {
        (gpu, round_): read_run({**row, "gpu": gpu, "release": round_}).question.job.precision
        for gpu, round_ in (("H100", "v4.1"), ("B200", "v5.0"), ("B200", "v5.1"), ("H100", "v5.1"))
    }
    assert list(found.values()) == ["fp8", "fp8", "nvfp4", "fp8"]
    assert read_run({**row, "precision": "BF16", "release": "v5.1"}).question.job.precision == "bf16"


def test_positions_reach_the_sequence_of_a_run_that_ran():
    run = read_run({**LLAMA, "seq_len": "131072", "cp": "8", "pp": "1", "vp": "", "gbs": "8"})
    assert run.question.model.max_position == 131072


def test_a_key_names_the_model_where_the_name_says_more():
    run = read_run({**LLAMA, "model": "Qwen3 MoE 30B", "model_key": "qwen3-30b", "pp": "1", "vp": ""})
    assert run.question.model.name == "qwen3-30b-a3b"
