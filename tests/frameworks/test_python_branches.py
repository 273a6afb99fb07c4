"""What a Python file sets on one way only is not guessed: it is open, as Python itself would leave it."""

import time

import pytest

from meshwright.frameworks.read import read_text
from meshwright.frameworks.reading import Reading

TP = "tensor_model_parallel_size"
FILE = """from megatron.bridge.recipes.llama import llama3_70b_pretrain_config
def configure(big, n):
    cfg = llama3_70b_pretrain_config()
    cfg.model.micro_batch_size = 1
    {}
    return cfg
"""


def read(lines: str) -> Reading:
    (found,) = read_text(FILE.format(lines.replace("\n", "\n    ")), "recipe.py")
    return found


def use(lines: str) -> Reading:
    return read(f"{lines}\ncfg.model.{TP} = tp")


OPEN = {
    "two branches": "if big:\n    tp = 8\nelse:\n    tp = 2",
    "one branch": "tp = 2\nif big:\n    tp = 8",
    "rounds of a for": "tp = 1\nfor _ in range(3):\n    tp *= 2",
    "the variable of a for": "tp = 1\nfor tp in (2, 4):\n    pass",
    "rounds of a while": "tp = 1\nwhile n > tp:\n    tp *= 2",
    "an exception": "tp = 2\ntry:\n    check()\nexcept ValueError:\n    tp = 8",
    "a match": "tp = 2\nmatch n:\n    case 8:\n        tp = 8",
    "an item": "sizes = {'tp': 2}\nsizes['tp'] = n\ntp = sizes['tp']",
    "some item": "sizes = {'tp': 2}\nsizes[n] = 8\ntp = sizes['tp']",
    "an update": "sizes = {'tp': 2}\nsizes.update(n)\ntp = sizes['tp']",
}


@pytest.mark.parametrize("lines", OPEN.values(), ids=OPEN)
def test_a_name_that_is_not_settled_leaves_the_option_open(lines: str) -> None:
    found = use(lines)
    assert TP in {unknown.option for unknown in found.unknowns}
    assert found.get(TP) in (None, 4)  # 4 is the recipe's own


def test_an_option_set_on_one_way_only_is_open() -> None:
    found = read(f"if big:\n    cfg.model.{TP} = 8")
    assert [unknown.option for unknown in found.unknowns] == [TP]


SETTLED = {
    "both branches": "if big:\n    tp = 8\nelse:\n    tp = 8",
    "a settled condition": "tp = 2\nif 1 < 2:\n    tp = 8",
    "other names": "tp = 8\nif big:\n    pp = 2",
    "a loop over others": "tp = 8\nfor i in range(3):\n    print(i)",
    "no exception": "try:\n    tp = 8\nexcept ValueError:\n    raise",
    "behind the branches": "if big:\n    tp = 2\nelse:\n    tp = 4\ntp = 8",
    "an item": "sizes = {'tp': 2}\nsizes['tp'] = 8\ntp = sizes['tp']",
}


@pytest.mark.parametrize("lines", SETTLED.values(), ids=SETTLED)
def test_what_all_ways_set_alike_holds(lines: str) -> None:
    found = use(lines)
    assert found.get(TP) == 8
    assert not found.unknowns


def test_a_recipe_that_depends_is_none() -> None:
    text = FILE.format(f"if big:\n        cfg = llama3_8b_pretrain_config()\n    cfg.model.{TP} = 2")
    (found,) = read_text(text, "recipe.py")
    assert found.recipe is None
    assert "recipe" in {unknown.option for unknown in found.unknowns}


@pytest.mark.parametrize(
    "text",
    [
        "\n".join(f"a{n} = 1" for n in range(25_000)),
        "\n".join(f"a{n} = 1" for n in range(10_000)) + "\nf(**a)" * 10_000,
        "\n".join(f"a{n} = 1" for n in range(10_000)) + "\nif b:\n  c = 1" * 8_000,
        "a = {}" + "\na['b'] = 1\na = {'c': 2}" * 8_000,
    ],
    ids=("names", "stars", "branches", "dicts"),
)
def test_long_files_take_no_long_time(text: str) -> None:
    from meshwright.errors import QuestionError

    start = time.perf_counter()
    with pytest.raises(QuestionError):
        read_text(text, "long.py")
    assert time.perf_counter() - start < 15
