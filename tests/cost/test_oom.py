"""Out-of-memory messages as users paste them."""

import pytest

from meshwright.cost.oom import read_out_of_memory
from meshwright.errors import QuestionError

GIB = 2**30
NEW = (
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 7.83 GiB. GPU 3 has a total capacity of "
    "79.11 GiB of which 2.31 GiB is free. Process 11 has 76.79 GiB memory in use. Of the allocated memory "
    "70.12 GiB is allocated by PyTorch, and 4.01 GiB is reserved by PyTorch but unallocated."
)
OLD = (
    "RuntimeError: CUDA out of memory. Tried to allocate 2.29 GiB (GPU 0; 31.75 GiB total capacity; "
    "19.22 GiB already allocated; 1.01 GiB free; 28.32 GiB reserved in total by PyTorch)"
)


def test_the_new_wording_of_torch():
    found = read_out_of_memory("[rank12]: " + NEW)
    assert found.tried == pytest.approx(7.83 * GIB)
    assert found.capacity == pytest.approx(79.11 * GIB)
    assert found.allocated == pytest.approx(70.12 * GIB)
    assert found.reserved == pytest.approx(74.13 * GIB)
    assert found.free == pytest.approx(2.31 * GIB)
    assert (found.device, found.rank) == (3, 12)


def test_the_old_wording_of_torch():
    found = read_out_of_memory(OLD)
    assert found.reserved == pytest.approx(28.32 * GIB)
    assert found.allocated == pytest.approx(19.22 * GIB)


def test_memory_that_is_reserved_and_idle_is_fragmentation():
    """9.1 GiB idle inside the allocator and 2.29 GiB asked for."""
    found = read_out_of_memory(OLD)
    assert found.fragmented
    assert "fragmentation" in found.causes[0]
    assert "expandable segments" in found.remedies[0]
    assert not read_out_of_memory(NEW).fragmented


@pytest.mark.parametrize(
    ("trace", "stage"),
    [
        ("cross_entropy.py, line 30, in calculate_logits_max\n    logits.float()", "loss"),
        ("optimizer/distrib_optimizer.py, line 500, in __init__", "optimizer creation"),
        ("optimizers/fused_adam.py, line 300, in initialize_state", "first optimizer step"),
        ("distributed/param_and_grad_buffer.py, line 600, in __init__", "gradient buffers"),
        ("_flatten_dense_tensors(grads)", "gradient buffers"),
        ("moe/token_dispatcher.py, line 660, in token_dispatch", "expert dispatch"),
        ("random.py, line 400, in backward CheckpointFunction", "recomputation"),
        ("dot_product_attention/backends.py, baddbmm(", "attention"),
        ("training.py, line 2200, in evaluate", "evaluation"),
        ("gpt_model.py, line 120, in __init__", "model build"),
    ],
)
def test_the_traceback_names_the_part_of_the_step(trace, stage):
    assert read_out_of_memory(f'File "/opt/megatron/{trace}\n{NEW}').stage == stage


def test_a_killed_process_is_the_hosts_memory():
    found = read_out_of_memory("slurmstepd: error: Detected 1 oom-kill event(s) in StepId=123.0")
    assert found.stage == "host memory"
    assert found.tried is None


def test_nccl_out_of_memory_is_beside_torch():
    found = read_out_of_memory("NCCL WARN Failed to CUDA calloc 6291456 bytes\nncclUnhandledCudaError")
    assert found.stage == "communicator set-up"


def test_a_text_without_such_an_error_is_refused():
    with pytest.raises(QuestionError, match="no out-of-memory error"):
        read_out_of_memory("iteration 137: loss 2.3")


def test_a_huge_hostile_log_is_read_quickly():
    import time

    start = time.perf_counter()
    read_out_of_memory("optimizer.py dist_checkpointing/strategies NCCL " * 100_000 + OLD)
    assert time.perf_counter() - start < 5


def test_what_stands_long_before_or_after_the_error_does_not_name_the_part():
    """A save that went well before, and the processes that are killed after the GPU's error."""
    trace = "Traceback (most recent call last):\n  File dot_product_attention/backends.py, baddbmm(\n"
    log = "save_checkpoint done\n" + "iteration 137\n" * 10 + trace + NEW + "\nExited with exit code 137\n"
    found = read_out_of_memory(log)
    assert found.stage == "attention"
    assert found.tried == pytest.approx(7.83 * GIB)


def test_a_rank_before_its_traceback_is_kept():
    trace = "[rank12]: Traceback (most recent call last):\n[rank12]: fused_adam.py, in step\n"
    assert read_out_of_memory("[rank3]: ok\n" + trace + "[rank12]: " + NEW).rank == 12


def test_the_last_of_several_errors_is_read():
    first = "Traceback (most recent call last):\n cross_entropy.py, in forward\n" + NEW
    second = "\nTraceback (most recent call last):\n fused_adam.py, in step\n" + NEW.replace("7.83", "1.50")
    found = read_out_of_memory(first + second)
    assert (found.stage, found.tried) == ("first optimizer step", 1.5 * GIB)
