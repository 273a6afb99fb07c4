"""Collectives against NCCL's measured curves, and exchanges worked by hand."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from tests.cost.asking_time import PLAIN, ask

from meshwright.cluster.parse import parse_cluster
from meshwright.cost.experts import _one_way, copies_sent
from meshwright.cost.keys import distinct_keys
from meshwright.cost.machine import machine_for
from meshwright.cost.network import network_of
from meshwright.job.spec import Execution
from meshwright.layout.layout import Layout

SAMPLES = json.loads((Path(__file__).parent / "data" / "measured_samples.json").read_text())


def one(value: float) -> np.ndarray:
    return np.array([float(value)])


@pytest.mark.parametrize("gpu", ["A100", "H100", "B200", "GB300"])
def test_gathers_inside_a_node_follow_the_measured_curve(gpu):
    rows = [row for row in SAMPLES["nccl"] if row["gpu"] == gpu]
    network = network_of(parse_cluster(f"8x{gpu}"))
    off = []
    for row in rows:
        group = network.group(one(row["members"]), one(1))
        off.append(network.gather(group, one(row["bytes"]), row["kind"])[0] / (row["ms"] / 1e3) - 1)
    assert np.median(np.abs(off)) < 0.1


@pytest.mark.parametrize(("mib", "gb_per_s"), [(8, 164), (32, 234), (128, 299), (512, 335)])
def test_bus_bandwidth_of_an_all_gather_on_8_h100(mib, gb_per_s):
    network, size = network_of(parse_cluster("8xH100")), mib * 2**20
    took = network.gather(network.group(one(8), one(1)), one(size))[0]
    assert size * 7 / 8 / took / 1e9 == pytest.approx(gb_per_s, rel=0.08)


def test_a_group_of_strided_ranks_has_the_members_that_share_its_domain():
    network = network_of(parse_cluster("64xH100"))
    group = network.group(one(16), one(4))  # ranks 0, 4, 8, ...: two to a node of eight
    assert (group.inside[0], group.domains[0]) == (2, 8)
    wide = network_of(parse_cluster("64xGB200")).group(one(64), one(1))
    assert (wide.inside[0], wide.domains[0]) == (64, 1)


def test_a_ring_across_nodes_is_bound_by_the_nics_of_a_node():
    network = network_of(parse_cluster("64xH100"))
    lonely, rich = network.group(one(8), one(8)), network.group(one(64), one(1))
    size = 4e9
    # one member a node: 7/8 of 4 GB through one 50 GB/s NIC at 85 %
    assert network.gather(lonely, one(size))[0] == pytest.approx(size * 7 / 8 / (50e9 * 0.85), rel=0.02)
    assert network.gather(rich, one(size))[0] < network.gather(lonely, one(size))[0] / 5


def test_nothing_is_sent_in_a_group_of_one():
    network = network_of(parse_cluster("8xH100"))
    alone = network.group(one(1), one(1))
    assert network.gather(alone, one(1e9))[0] == network.all_reduce(alone, one(1e9))[0] == 0


@pytest.mark.parametrize(
    ("ep", "top_k", "copies"), [(2, 1, 0.5), (8, 1, 0.875), (8, 8, 4.595), (64, 8, 7.458)]
)
def test_merged_copies_that_leave_a_rank(ep, top_k, copies):
    """ep*(1-(1-1/ep)^k)*(ep-1)/ep, by hand."""
    assert copies_sent(one(ep), top_k)[0] == pytest.approx(copies, rel=1e-3)


@pytest.mark.parametrize("row", SAMPLES["deepep"], ids=lambda row: f"{row['nodes']} nodes")
def test_deepep_takes_what_its_combine_takes_on_h100(row):
    ep = 8 * row["nodes"]
    question, table = ask(
        "deepseek-v3", f"{ep}xH100", Layout(ep=ep), batch=ep,
        execution=Execution(dispatcher="deepep"), calibration=PLAIN,
    )  # fmt: skip
    x = machine_for(question, distinct_keys(table))
    token = 2.0 * row["hidden"] * row["tokens"]
    assert _one_way(x, x.ep, one(token), row["top_k"], "deepep")[0] == pytest.approx(
        row["combine_us"] / 1e6, rel=0.15
    )
