"""Clusters are read as people write them, and slips are explained."""

from __future__ import annotations

import pytest

from meshwright.cluster.catalog import find_gpu
from meshwright.cluster.describe import describe
from meshwright.cluster.parse import parse_cluster, parse_gpu_count
from meshwright.errors import QuestionError


@pytest.mark.parametrize(
    ("text", "nodes", "per_node", "domain"),
    [
        ("256xH100", 32, 8, 8),
        ("32x8xH100", 32, 8, 8),
        ("16x4xH100", 16, 4, 4),
        ("4xH100", 1, 4, 4),
        ("1 x H100", 1, 1, 1),
        ("1,024*h100", 128, 8, 8),
        ("64xGB200", 16, 4, 64),
        ("144xGB200", 36, 4, 72),
        ("8xA100-PCIe", 1, 8, 1),
        ("8xH100-NVL", 1, 8, 2),
    ],
)
def test_shapes(text, nodes, per_node, domain):
    cluster = parse_cluster(text)
    assert (cluster.nodes, cluster.gpus_per_node, cluster.nvlink_domain) == (nodes, per_node, domain)
    assert cluster.world == nodes * per_node


def test_gb200_says_16_nodes_of_4_and_one_domain_of_72():
    assert "16 nodes of 4, one NVLink domain of 72 (64 in use)" in describe(parse_cluster("64xGB200"))


def test_pcie_says_that_there_is_no_nvlink():
    assert "no NVLink between GPUs" in describe(parse_cluster("8xA100-40GB-PCIe"))


def test_overrides():
    cluster = parse_cluster("64xH100", gpus_per_node=4, nvlink_domain=32, network_gbps=100, gpu_memory_gb=94)
    assert (cluster.nodes, cluster.nvlink_domain) == (16, 32)
    assert cluster.network == 12.5e9
    assert cluster.gpu.usable_memory == 94 * 1024**3
    assert cluster.gpu.peak == find_gpu("H100").peak


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("1024", "of which kind"),
        ("0xH100", "0 GPUs"),
        ("-8xH100", "-8 GPUs"),
        ("0x8xH100", "0 nodes"),
        ("12xH100", "nearest that do: 8 or 16"),
        ("8xV100", "unknown GPU 'V100'; did you mean"),
        ("99999999999xH100", "more than Meshwright believes"),
        ("9" * 5000 + "xH100", "is not a cluster"),
        ("H100", "how many"),
        ("", "is not a cluster"),
        ("8.5xH100", "is not a cluster"),
        ("8x8x8xH100", "is not a cluster"),
        ("\u0661\u0662xH100", "is not a"),
        ("nowhere.yaml", "cannot read nowhere.yaml"),
    ],
)
def test_slips_are_explained(text, says):
    with pytest.raises(QuestionError, match=says):
        parse_cluster(text)


@pytest.mark.parametrize(
    ("overrides", "says"),
    [
        ({"gpus_per_node": 0}, "0 GPUs a node"),
        ({"gpus_per_node": 7}, "nearest that do: 63 or 70"),
        ({"nvlink_domain": -1}, "-1 GPUs in an NVLink domain"),
        ({"nvlink_domain": 12}, "nearest: 8 or 16"),
        ({"network_gbps": 0}, "above 0"),
        ({"network_gbps": float("nan")}, "not a number"),
        ({"gpu_memory_gb": -80}, "above 0"),
        ({"gpu_memory_gb": float("inf")}, "not a number"),
    ],
)
def test_bad_overrides_are_explained(overrides, says):
    with pytest.raises(QuestionError, match=says):
        parse_cluster("64xH100", **overrides)


def test_two_sizes_of_a_node_contradict():
    with pytest.raises(QuestionError, match="says 8 GPUs a node and --gpus-per-node says 4"):
        parse_cluster("2x8xH100", gpus_per_node=4)


@pytest.mark.parametrize(("text", "count"), [("256", 256), (1024, 1024), ("256xH100", 256), ("2x4xGB200", 8)])
def test_a_bare_number_is_enough_for_a_count(text, count):
    assert parse_gpu_count(text) == count


@pytest.mark.parametrize("text", ["0", "-4", "many", "1e9", "4.0"])
def test_a_bad_count_is_refused(text):
    with pytest.raises(QuestionError):
        parse_gpu_count(text)
