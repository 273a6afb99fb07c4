"""What `check` says in SARIF is SARIF by the schema of its authors."""

import json
from pathlib import Path

import jsonschema
import pytest

from meshwright.frameworks import outputs
from meshwright.frameworks.check import Report
from meshwright.frameworks.check_files import check_files

DATA = Path(__file__).parent / "data"
SCHEMA = json.loads((Path(__file__).parent / "schemas" / "sarif-2.1.0.json").read_text())


@pytest.fixture(scope="module")
def validator() -> jsonschema.Draft4Validator:
    return jsonschema.Draft4Validator(SCHEMA, format_checker=jsonschema.FormatChecker())


def test_the_log_of_every_sample_is_valid(validator):
    log = json.loads(outputs.sarif(check_files([DATA])))
    assert len(log["runs"][0]["results"]) > 40
    assert [error.message for error in validator.iter_errors(log)] == []


def test_the_log_of_nothing_and_of_unread_files_is_valid(validator, tmp_path):
    strange = tmp_path / "a b ü%.sh"
    strange.write_text("torchrun --nproc_per_node 8 pretrain_gpt.py --num-layers 4 --hidden-size 0\n")
    for report in (
        Report(results=()),
        Report(results=(), unread={"x.sh": "no file"}),
        check_files([strange]),
    ):
        log = json.loads(outputs.sarif(report))
        assert [error.message for error in validator.iter_errors(log)] == []


def test_the_schema_refuses_what_is_no_log(validator):
    assert list(validator.iter_errors({"version": "2.1.0"}))
    wrong = {"version": "2.1.0", "runs": [{"tool": {"driver": {}}, "results": [{"message": {}}]}]}
    assert list(validator.iter_errors(wrong))
