"""Every GPU has its figures and their sources, and is found by the names people use."""

from __future__ import annotations

import json
from copy import deepcopy
from pathlib import Path

import pytest

from meshwright.cluster.catalog import find_gpu, gpu_from_row, gpu_names
from meshwright.errors import QuestionError
from meshwright.facts import load_json

ROWS = load_json("meshwright.cluster", "gpus.json")["gpus"]
FACTS = json.loads((Path(__file__).parent / "data" / "hardware.json").read_text(encoding="utf-8"))["devices"]
GIB = 1024**3


def test_there_are_26_devices():
    assert len(gpu_names()) == len(set(gpu_names())) == 26


@pytest.mark.parametrize("fact", FACTS, ids=lambda fact: fact["id"])
def test_figures_are_those_of_the_facts_file(fact):
    gpu, packages = find_gpu(fact["id"]), fact.get("devices_per_package", 1)
    assert gpu.hbm == pytest.approx(fact["hbm_GBps"] * 1e9 / packages)
    assert gpu.nvlink == pytest.approx(fact["scaleup_GBps_per_gpu_unidirectional"] * 1e9 / packages)
    assert gpu.nic == pytest.approx(fact["nic_Gbps_per_gpu_typical"] * 1e9 / 8 / packages)
    peaks = {kind: value * 1e12 / packages for kind, value in fact["dense_peak_TFLOPS"].items() if value}
    assert dict(gpu.peak) == pytest.approx(peaks)
    if fact["usable_memory_GiB"] is not None:
        assert gpu.usable_memory == pytest.approx(fact["usable_memory_GiB"] * GIB / packages)
    if packages == 1:
        assert (gpu.nvlink_domain, gpu.gpus_per_node) == (fact["scaleup_domain_gpus"], fact["gpus_per_node"])


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row["name"])
def test_a_figure_without_a_source_is_refused(row):
    for field in ("hbm_gb_per_s", "usable_memory_gib", "nic_gbps", "nvlink_domain"):
        broken = deepcopy(row)
        broken[field]["source"] = " "
        with pytest.raises(ValueError, match=f"{field} has no source"):
            gpu_from_row(broken)


def test_a_peak_without_a_source_is_refused():
    broken = deepcopy(ROWS[0])
    broken["peak_tflops"]["bf16"] = 312
    with pytest.raises(ValueError, match="bf16 has no source"):
        gpu_from_row(broken)


@pytest.mark.parametrize(
    ("spoken", "name"),
    [
        ("H100", "H100-80GB-SXM"),
        ("h100-sxm", "H100-80GB-SXM"),
        ("H100-80GB", "H100-80GB-SXM"),
        ("H100SXM5", "H100-80GB-SXM"),
        ("DGX-H100", "H100-80GB-SXM"),
        ("NVIDIA H100 80GB HBM3", "H100-80GB-SXM"),
        ("NVIDIA H100 PCIe", "H100-80GB-PCIe"),
        ("H100 NVL", "H100-94GB-NVL"),
        ("A100", "A100-80GB-SXM"),
        ("a100_80g", "A100-80GB-SXM"),
        ("NVIDIA A100-SXM4-40GB", "A100-40GB-SXM"),
        ("NVIDIA A100-PCIE-40GB", "A100-40GB-PCIe"),
        ("H800", "H800-80GB-SXM"),
        ("GB200", "GB200-NVL72"),
        ("DGX-GB300", "GB300-NVL72"),
        ("AMD Instinct MI300X", "MI300X-192GB"),
        ("Rubin", "VR200-NVL72"),
        ("VR200", "VR200-NVL72"),
        ("910B", "Ascend-910B"),
    ],
)
def test_forgiving_names(spoken, name):
    assert find_gpu(spoken).name == name


@pytest.mark.parametrize("short", ["A100", "A800", "H100", "H800", "H20", "H200"])
def test_a_short_name_that_fits_several_cards_says_which_it_takes(short):
    assert f"'{short}' alone" in find_gpu(short).notes


def test_an_unknown_gpu_suggests_names():
    with pytest.raises(QuestionError, match=r"unknown GPU 'H10'; did you mean H100") as error:
        find_gpu("H10")
    assert error.value.exit_status == 2


def test_a_huge_name_is_answered_quickly_and_shortly():
    with pytest.raises(QuestionError) as error:
        find_gpu("H" * 2_000_000)
    assert len(str(error.value)) < 1000


def test_a_gcd_is_half_a_package():
    assert find_gpu("MI250X").peak["bf16"] == pytest.approx(383e12 / 2)
    assert "half" in find_gpu("MI250X").notes
