"""Releases, execution defaults and number formats follow published settings."""

from __future__ import annotations

import pytest

from meshwright.cluster.catalog import all_gpus, find_gpu
from meshwright.errors import QuestionError
from meshwright.facts import load_json
from meshwright.job.spec import Execution, Stack
from meshwright.job.stacks import (
    check_release,
    default_execution,
    execution_source,
    releases,
    supported_precisions,
)


def test_releases_run_from_25_09_to_26_08():
    assert (releases()[0], releases()[-1]) == ("25.09", "26.08")


def test_an_unknown_framework_is_refused():
    with pytest.raises(QuestionError, match="unknown framework 'megatron-core2'; did you mean megatron-core"):
        Stack(framework="megatron-core2")


@pytest.mark.parametrize("release", ["25.08", "27.01", "latest", "26", "26.06; rm"])
def test_an_unknown_release_is_refused(release):
    with pytest.raises(QuestionError, match=r"26\.08"):
        check_release(release)


@pytest.mark.parametrize(
    ("release", "gpu", "precision", "dispatcher", "graphs", "ep_overlap"),
    [  # settings of published Qwen3-30B-A3B rows at these releases
        ("25.11", "H100", "bf16", "alltoall", "none", False),
        ("25.11", "GB200", "mxfp8", "hybridep", "moe", False),
        ("26.02", "H100", "fp8-current", "deepep", "none", True),
        ("26.04", "H100", "fp8-current", "hybridep", "none", False),
        ("26.04", "GB200", "mxfp8", "hybridep", "moe", False),
        ("26.06", "H100", "fp8-current", "hybridep", "none", False),
        ("26.06", "GB200", "mxfp8", "hybridep", "full", True),
        ("26.08", "GB200", "mxfp8", "hybridep", "full", True),
    ],
)
def test_moe_defaults_are_those_of_published_runs(release, gpu, precision, dispatcher, graphs, ep_overlap):
    execution = default_execution(Stack(release=release), find_gpu(gpu), True, precision)
    assert (execution.dispatcher, execution.cuda_graphs) == (dispatcher, graphs)
    assert ("ep" in execution.overlaps) == ep_overlap
    assert execution.grouped_mlp_fusion == (graphs == "full")


@pytest.mark.parametrize("moe", [False, True])
@pytest.mark.parametrize("release", releases())
@pytest.mark.parametrize("gpu", all_gpus(), ids=lambda gpu: gpu.name)
def test_every_gpu_and_release_has_legal_sourced_defaults(gpu, release, moe):
    stack = Stack(release=release)
    for precision in supported_precisions(gpu) or ():
        execution = default_execution(stack, gpu, moe, precision)
        assert isinstance(execution, Execution)
        assert moe or ("ep" not in execution.overlaps and execution.dispatcher == "alltoall")
        assert execution_source(stack, gpu, moe, precision)


def test_fused_dispatchers_stay_on_nvidia_data_center_gpus():
    for name in ("A100", "L40S", "MI300X", "Ascend-910B", "RTX-PRO-6000"):
        assert default_execution(Stack(release="26.08"), find_gpu(name), True).dispatcher == "alltoall"


def test_fp8_needs_units_with_a_peak():
    for gpu in all_gpus():
        assert ("fp8" in (supported_precisions(gpu) or ())) == ("fp8" in gpu.peak), gpu.name


def test_every_row_has_a_source():
    data = load_json("meshwright.job", "execution.json")
    assert all(row["source"] for row in (*data["defaults"], *data["precisions"]))
