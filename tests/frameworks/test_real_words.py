"""Words that are written are words of the frameworks themselves, by data taken from their packages."""

from __future__ import annotations

import re
import shlex

import pytest
from tests.engine.written_plans import PLANS, plan

from meshwright.frameworks import ms_swift
from meshwright.frameworks.read import read_command
from meshwright.frameworks.spelling import arguments, table
from meshwright.frameworks.view import model_of
from meshwright.frameworks.write import write
from meshwright.model import catalog

TITAN = {
    # fields of TrainingConfig and ParallelismConfig, torchtitan 0.3.0
    "training": {"local_batch_size", "global_batch_size", "seq_len"},
    "parallelism": {
        "data_parallel_replicate_degree", "data_parallel_shard_degree", "tensor_parallel_degree",
        "pipeline_parallel_degree", "context_parallel_degree", "expert_parallel_degree",
    },
}  # fmt: skip


def flags(text: str) -> list[str]:
    return re.findall(r"^ {4}--([\w.-]+)", text, re.MULTILINE)


@pytest.mark.parametrize("case", PLANS)
def test_megatron_lm_has_every_argument(case: str) -> None:
    assert [
        flag for flag in flags(write("megatron-lm", plan(case))["train.sh"]) if flag not in arguments()
    ] == []


@pytest.mark.parametrize("case", PLANS)
def test_ms_swift_has_every_argument(case: str) -> None:
    assert set(flags(write("ms-swift", plan(case))["train.sh"])) <= ms_swift.known()


@pytest.mark.parametrize("case", PLANS)
def test_torchtitan_has_every_field(case: str) -> None:
    words = {word for word in flags(write("torchtitan", plan(case))["train.sh"]) if "." in word}
    assert words
    for word in words:
        section, _, name = word.partition(".")
        assert name in TITAN[section], word


def test_configs_of_torchtitan_are_models_here() -> None:
    rows = {name: row for name, row in table()["torchtitan_configs"].items() if isinstance(row, list)}
    assert all(catalog.known(name) for name in rows)
    text = "torchrun --nproc_per_node 8 -m torchtitan.train --module llama3 --config llama3_70b"
    (reading,) = read_command([*text.split(), "--parallelism.tensor_parallel_degree", "8"])
    assert reading.framework == "torchtitan"
    model = model_of(reading)
    assert model is not None
    assert (model.num_layers, model.hidden) == (80, 8192)


@pytest.mark.parametrize("case", PLANS)
def test_hydra_takes_the_words_for_verl(case: str) -> None:
    """`++` where the key may be there already (recompute_modules is, with a default) or not."""
    parser = pytest.importorskip("hydra.core.override_parser.overrides_parser").OverridesParser.create()
    text = write("verl", plan(case))["run.sh"]
    words = shlex.split(text[text.index("python3 ") :].replace("\\\n", " "))[3:]
    parsed = parser.parse_overrides([word for word in words if not word.startswith("--")])
    added = {one.key_or_group.split(".")[-1]: one for one in parsed if "override_" in one.key_or_group}
    assert all(one.is_force_add() for one in added.values())
