"""What lies outside the measured runs is said, and its band is wider."""

import pytest

import meshwright as mw


@pytest.mark.parametrize(("gpus", "tflops"), [(8192, 430), (16384, 400)])
def test_llama_405b_of_its_paper_is_inside_the_band(gpus, tflops):
    """Llama 3 (arXiv 2407.21783, table 4): TP8 PP16, 8,192 tokens, 16 Mi tokens a step."""
    options = mw.Options(seq_length=8192, global_batch=2048, tp=8, pp=16, cp=1)
    best = mw.plan("llama3.1-405b", f"{gpus}xH100", options, top=1).best
    seconds = best.time.step_seconds * best.time.model_tflops_per_gpu / tflops
    assert best.time.low_seconds < seconds < best.time.high_seconds
    assert any("largest run" in one.source for one in best.assumptions)


def test_a_gpu_without_tables_says_whose_kernels_it_takes():
    options = mw.Options(seq_length=4096, global_batch=64)
    told = {one.option: one.value for one in mw.estimate("llama3-8b", "8xMI300X-192GB", options).assumptions}
    assert told["kernels"] == "H100"
    own = mw.estimate("llama3-8b", "8xH100", options).assumptions
    assert not any(one.option == "kernels" for one in own)
