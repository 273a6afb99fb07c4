"""A YAML file describes a cluster of one's own; mistakes are named by field."""

from __future__ import annotations

import pytest

from meshwright.cluster.catalog import find_gpu
from meshwright.cluster.file import load_cluster
from meshwright.cluster.parse import parse_cluster
from meshwright.errors import QuestionError

FULL_GPU = """
  name: mine
  architecture: Hopper
  usable_memory_gib: 60
  hbm_gb_per_s: 1000
  nvlink_gb_per_s: 100
  nic_gbps: 200
  nvlink_domain: 4
  gpus_per_node: 4
  peak_tflops: {bf16: 100}
"""


def written(tmp_path, text):
    path = tmp_path / "my.yaml"
    path.write_text(text, encoding="utf-8")
    return path


def test_a_known_gpu_in_own_nodes(tmp_path):
    cluster = load_cluster(
        written(tmp_path, "{name: ours, nodes: 16, gpus_per_node: 4, network_gbps: 100, gpu: H100}")
    )
    assert (cluster.name, cluster.world, cluster.nvlink_domain, cluster.network) == ("ours", 64, 4, 12.5e9)


def test_a_gpu_based_on_another_inherits_the_rest(tmp_path):
    path = written(tmp_path, "nodes: 2\ngpu: {based_on: H100, hbm_gb_per_s: 3900, peak_tflops: {bf16: 800}}")
    gpu, h100 = load_cluster(path).gpu, find_gpu("H100")
    assert (gpu.hbm, gpu.peak["bf16"]) == (3.9e12, 8e14)
    assert (gpu.nvlink, gpu.peak["fp8"], gpu.architecture) == (h100.nvlink, h100.peak["fp8"], "Hopper")


def test_a_gpu_given_in_full(tmp_path):
    cluster = load_cluster(written(tmp_path, f"gpus: 8\ngpu:{FULL_GPU}"))
    assert (cluster.nodes, cluster.gpu.name, cluster.gpu.usable_memory) == (2, "mine", 60 * 1024**3)


def test_the_file_is_a_cluster_with_overrides(tmp_path):
    path = written(tmp_path, "{nodes: 2, gpu: H100, nvlink_domain: 16}")
    assert parse_cluster(str(path)).nvlink_domain == 16
    assert parse_cluster(str(path), network_gbps=800).network == 1e11
    assert parse_cluster(str(path), gpus_per_node=4).nodes == 4


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "holds a NoneType"),
        ("[1, 2]", "holds a list"),
        ("{nodes: 2, gpu: H100, bandwith: 3}", "unknown field 'bandwith'"),
        ("{nodes: 2, gpu: H100, network_gpbs: 3}", "did you mean network_gbps"),
        ("{nodes: 2, gpu: {based_on: H100, hbm: 3}}", "gpu: unknown field 'hbm'"),
        ("{nodes: 2}", "the field gpu is missing"),
        ("{gpu: H100}", "give the size as nodes"),
        ("{nodes: 2, gpus: 17, gpu: H100}", "2 nodes of 8 are 16 GPUs, but gpus says 17"),
        ("{nodes: 0, gpu: H100}", "must be at least 1"),
        ("{nodes: two, gpu: H100}", "nodes is 'two', not a whole number"),
        ("{nodes: 2, gpu: H10}", "unknown GPU 'H10'"),
        ("{nodes: 2, gpu: {based_on: H100, hbm_gb_per_s: -1}}", "hbm_gb_per_s is -1"),
        ("{nodes: 2, gpu: {based_on: H100, peak_tflops: 3}}", "peak_tflops holds a int"),
        ("{nodes: 2, gpu: {name: mine}}", "gpu lacks architecture"),
        ("{nodes: 2, gpu: [", "is not readable YAML"),
        ("? [a]\n: 1", "is not readable YAML|unknown field"),
        ("[" * 5000, "is not readable YAML"),
    ],
)
def test_mistakes_are_named(tmp_path, text, says):
    with pytest.raises(QuestionError, match=says):
        load_cluster(written(tmp_path, text))


def test_a_peak_without_bf16_is_refused(tmp_path):
    text = f"gpus: 8\ngpu:{FULL_GPU.replace('bf16', 'fp8')}"
    with pytest.raises(QuestionError, match="lacks bf16"):
        load_cluster(written(tmp_path, text))


def test_other_files_are_refused(tmp_path):
    with pytest.raises(QuestionError, match="cannot read"):
        load_cluster(tmp_path / "missing.yaml")
    with pytest.raises(QuestionError, match="is not a file"):
        load_cluster(tmp_path)
    (tmp_path / "raw.yaml").write_bytes(b"\xff\xfe\x00\x80")
    with pytest.raises(QuestionError, match="is not readable YAML"):
        load_cluster(tmp_path / "raw.yaml")
    with (tmp_path / "big.yaml").open("wb") as big:
        big.truncate(2 * 1024**3)
    with pytest.raises(QuestionError, match="too large"):
        load_cluster(tmp_path / "big.yaml")


def test_a_bomb_of_aliases_does_not_flood_the_screen(tmp_path):
    lines = ["a: &a [x, x, x, x, x, x, x, x, x]"]
    lines += [
        f"{new}: &{new} [{', '.join(['*' + old] * 9)}]"
        for old, new in zip("abcdefgh", "bcdefghi", strict=True)
    ]
    with pytest.raises(QuestionError) as error:
        load_cluster(written(tmp_path, "\n".join(lines)))
    assert len(str(error.value)) < 500
    nested = "&a [x, x, x, x, x, x, x, x, x]"
    for old, new in zip("abcdefgh", "bcdefghi", strict=True):
        nested = f"&{new} [{nested}, {', '.join(['*' + old] * 8)}]"
    for field in ("name", "gpus", "gpu"):
        with pytest.raises(QuestionError, match=f"{field}") as error:
            load_cluster(written(tmp_path, f"{{nodes: 1, gpu: H100, {field}: {nested}}}"))
        assert len(str(error.value)) < 500
