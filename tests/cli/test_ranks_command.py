"""`meshwright ranks`: the worked example of Megatron's groups, and questions it refuses."""

import json

import pytest
from typer.testing import CliRunner

from meshwright.cli.main import app
from meshwright.errors import LayoutError, QuestionError


def run(words: str):
    return CliRunner().invoke(app, words.split())


def test_the_worked_example_of_sixteen_ranks_as_json():
    # groups as RankGenerator of Megatron Core makes them for TP2 CP2 PP2 EP4 on 16 ranks
    data = json.loads(run("ranks --world-size 16 --tp 2 --cp 2 --pp 2 --ep 4 --json").stdout)
    assert data["world_size"] == 16
    groups = data["groups"]
    assert groups["tp"][:3] == [[0, 1], [2, 3], [4, 5]]
    assert groups["cp"][:4] == [[0, 2], [1, 3], [4, 6], [5, 7]]
    assert groups["pp"][0] == [0, 8]
    assert groups["dp-cp"][0] == [0, 2, 4, 6]
    assert groups["ep"] == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9, 10, 11], [12, 13, 14, 15]]
    assert groups["edp"][0] == [0, 4]
    rank = data["ranks"][13]
    assert {name: rank[name] for name in ("rank", "node", "tp", "cp", "dp", "pp", "ep", "etp", "edp")} == {
        "rank": 13, "node": 1, "tp": 1, "cp": 0, "dp": 1, "pp": 1, "ep": 1, "etp": 0, "edp": 1,
    }  # fmt: skip


def test_the_other_order_pairs_neighbouring_stages():
    words = "ranks --world-size 16 --tp 2 --cp 2 --pp 2 --ep 4 --use-tp-pp-dp-mapping --json"
    data = json.loads(run(words).stdout)
    assert data["groups"]["pp"][0] == [0, 4]
    assert data["groups"]["dp"][0] == [0, 8]


def test_the_screen_says_which_traffic_leaves_a_node():
    shown = run("ranks --world-size 16 --tp 2 --pp 2").stdout
    line = next(line for line in shown.splitlines() if line.startswith("pp "))
    assert "node" in line


@pytest.mark.parametrize(
    ("words", "kind", "says"),
    [
        ("ranks", QuestionError, "--world-size"),
        ("ranks --world-size 0", QuestionError, "at least 1"),
        ("ranks --world-size 12 --tp 8", LayoutError, "8 or 16"),
        ("ranks --world-size 8 --tp 2 --group nope", QuestionError, "nope"),
        ("ranks --world-size 8 --rank 9", QuestionError, "rank 9"),
        ("ranks --world-size 8 --tp 1,2", QuestionError, "one value"),
        ("ranks --world-size 99999999999", QuestionError, "99999999999"),
    ],
)
def test_questions_that_make_no_sense_are_refused(words, kind, says):
    done = run(words)
    assert isinstance(done.exception, kind)
    assert says in str(done.exception)
