"""Manifests that are written are PyTorchJobs by Kubeflow's and Kubernetes' own models."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from meshwright.cluster.parse import parse_cluster
from meshwright.frameworks.plan import Plan, plan_of
from meshwright.frameworks.write import write
from meshwright.job.spec import Execution, Job
from meshwright.layout.layout import Layout
from meshwright.model.catalog import find

FOLDER = Path(__file__).parent
SCHEMA = json.loads((FOLDER / "schemas" / "pytorchjob.json").read_text())
VALIDATOR = jsonschema.Draft7Validator(SCHEMA)


FILLED_IN = "'runPolicy' is a required property"
"""The models ask for it; a cluster fills it in."""


def problems(tree: Any) -> list[str]:
    return [f"{error.json_path}: {error.message}" for error in VALIDATOR.iter_errors(tree)]


def plan(name: str, gpus: str, layout: Layout) -> Plan:
    return plan_of(
        find(name), parse_cluster(gpus), Job(seq_length=4096, global_batch=512), layout, Execution()
    )


@pytest.mark.parametrize(("name", "gpus", "layout"), [
    ("llama3-8b", "8xH100", Layout(tp=2, sp=True)),
    ("llama3-70b", "64xB200", Layout(tp=4, pp=4, vpp=5, sp=True)),
    ("qwen3-30b-a3b", "64xGB200", Layout(ep=32)),
])  # fmt: skip
def test_a_written_manifest_is_a_pytorchjob(name: str, gpus: str, layout: Layout) -> None:
    text = write("kubernetes", plan(name, gpus, layout))["pytorchjob.yaml"]
    tree = yaml.safe_load(text)
    assert problems(tree) == []
    assert (tree["apiVersion"], tree["kind"]) == ("kubeflow.org/v1", "PyTorchJob")
    specs = tree["spec"]["pytorchReplicaSpecs"]
    assert sum(spec["replicas"] for spec in specs.values()) == parse_cluster(gpus).nodes
    assert "&id" not in text


def test_names_are_those_of_kubernetes() -> None:
    """DNS-1123: lower case, digits, dashes, at most 63 characters."""
    import re
    from dataclasses import replace

    model = replace(find("llama3-8b"), name="My_Model.v2 " + "x" * 100)
    one = plan_of(
        model, parse_cluster("8xH100"), Job(seq_length=4096, global_batch=64), Layout(), Execution()
    )
    name = yaml.safe_load(write("kubernetes", one)["pytorchjob.yaml"])["metadata"]["name"]
    assert re.fullmatch(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?", name)


@pytest.mark.parametrize("file", ["data/11_pytorchjob_egret.yaml", "data/38_pytorchjob_crane.yaml",
                                  "launch/11_pytorchjob_args.yaml"])  # fmt: skip
def test_manifests_of_people_pass_the_same_schema(file: str) -> None:
    documents = list(yaml.safe_load_all((FOLDER / file).read_text()))
    jobs = [document for document in documents if document["kind"] == "PyTorchJob"]
    assert jobs
    assert [p for job in jobs for p in problems(job) if FILLED_IN not in p] == []


def test_the_schema_refuses_what_the_cluster_would() -> None:
    tree = yaml.safe_load(
        write("kubernetes", plan("llama3-8b", "8xH100", Layout(tp=2, sp=True)))["pytorchjob.yaml"]
    )
    container = tree["spec"]["pytorchReplicaSpecs"]["Master"]["template"]["spec"]["containers"][0]
    container["env"].append({"name": "TP", "value": 4})
    container["gpus"] = 8
    said = " ".join(problems(tree))
    assert "4 is not of type 'string'" in said
    assert "'gpus' was unexpected" in said
