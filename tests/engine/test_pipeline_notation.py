"""Pipeline layouts and uneven splits: the same verdicts and the same chunks as Megatron Core."""

from __future__ import annotations

import importlib.util
import json
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from meshwright.errors import MeshwrightError
from meshwright.layout.notation import NAME_OF
from meshwright.layout.pipeline import PipelineLayout

pytestmark = [
    pytest.mark.engine,
    # `make test` and CI always install it; a plain checkout without the extra still runs the other tests
    pytest.mark.skipif(importlib.util.find_spec("megatron") is None, reason="megatron-core is not installed"),
]

LAYOUTS = 600
SPLITS = 600
JUDGE = Path(__file__).with_name("pipeline_judge.py")


def draw_layout(seed: int) -> dict[str, Any]:
    """A layout with its depth: well-formed, then often damaged."""
    dice = random.Random(seed)
    pp, vpp, mtp = dice.choice((1, 2, 3, 4, 8)), dice.choice((1, 1, 2, 3, 4)), dice.choice((0, 0, 1, 2))
    sizes = [dice.choice((0, 1, 1, 2, 2, 3, 4, 7)) for _ in range(pp * vpp)]
    bodies = ["t" * size for size in sizes]
    bodies[0] = "E" + bodies[0]
    bodies[-1] += "m" * mtp + "L"
    if dice.random() < 0.15 and mtp and len(bodies) > 1 and not sizes[-1]:
        bodies[-2], bodies[-1] = bodies[-2] + "m" * mtp, "L"
    text = shortened(dice, "|".join(bodies))
    layers = sum(sizes)
    if dice.random() < 0.45:
        text = damaged(dice, text)
    if dice.random() < 0.08:
        layers += dice.choice((-1, 1))
    if dice.random() < 0.08:
        mtp += 1
    return {"layout": text, "pp": pp, "layers": layers, "mtp": mtp}


def shortened(dice: random.Random, text: str) -> str:
    """The same layout with some repeats written as repeats, and commas strewn in."""
    for size in (12, 7, 5, 4, 3, 2):
        if dice.random() < 0.6:
            text = text.replace("t" * size, f"t*{size}", 1)
    for body in ("tt|", "t*4|", "t|", "t|tt|"):
        for times in (4, 3, 2):
            if dice.random() < 0.5:
                text = text.replace(body * times, f"({body})*{times}", 1)
    if dice.random() < 0.3:
        at = dice.randrange(len(text) + 1)
        text = text[:at] + "," + text[at:]
    return text


def damaged(dice: random.Random, text: str) -> str:
    for _ in range(dice.choice((1, 1, 2))):
        at = dice.randrange(len(text) + 1)
        what = dice.choice(
            ("E", "L", "m", "t", "|", "(", ")", "*", "*3", "*0", "x", "e", " ", "(t|)*2", "t*2*2", "m|")
        )
        text = dice.choice((text[:at] + what + text[at:], text[:at] + text[at + 1 :]))
    return text


def draw_list(seed: int) -> dict[str, Any]:
    """The same as a list of lists of names, in Megatron's spelling or near it."""
    dice = random.Random(seed)
    case = draw_layout(seed)
    names = NAME_OF | {"x": "encoder", "e": "Embedding", " ": " decoder "}
    case["layout"] = [[names.get(letter, letter) for letter in chunk] for chunk in case["layout"].split("|")]
    if dice.random() < 0.03:
        case["layout"][0] = "embedding"
    return case


def draw_split(seed: int) -> dict[str, Any]:
    """Options of a split without a layout string.

    Not drawn: both ends given with pp 1. Megatron accepts that and builds only the last stage's number
    of layers; Meshwright refuses it.
    """
    dice = random.Random(seed)
    pp, vpp = dice.choice((1, 2, 2, 3, 4, 8)), dice.choice((None, None, 2, 3, 4))
    vpp = None if pp == 1 else vpp
    layers = pp * (vpp or 1) * dice.choice((1, 2, 3))
    options: dict[str, Any] = {
        "pipeline_model_parallel_size": pp,
        "virtual_pipeline_model_parallel_size": vpp,
    }
    style = dice.choice(("even", "ends", "account"))
    if style == "ends":
        for name in ("num_layers_in_first_pipeline_stage", "num_layers_in_last_pipeline_stage"):
            if dice.random() < 0.6 and (pp > 1 or len(options) == 2):
                options[name] = (vpp or 1) * dice.choice((0, 1, 2, 3)) if dice.random() < 0.8 else 1
        given = [value for name, value in options.items() if name.startswith("num_layers_in")]
        layers = max(1, sum(given) + (pp - len(given)) * (vpp or 1) * dice.choice((1, 2)))
    if style == "account":
        for name in ("account_for_embedding_in_pipeline_split", "account_for_loss_in_pipeline_split"):
            options[name] = dice.random() < 0.6
            layers -= options[name]
    options["num_layers"] = max(1, layers + (dice.choice((-1, 1)) if dice.random() < 0.25 else 0))
    return options


def ours(case: dict[str, Any]) -> PipelineLayout | None:
    try:
        layout = PipelineLayout.parse(case["layout"], case["pp"])
        layout.validate(case["layers"], case["mtp"])
    except MeshwrightError:
        return None
    return layout


def our_split(options: dict[str, Any]) -> list[list[int]] | None:
    size = (options["num_layers"], options["pipeline_model_parallel_size"])
    vpp = options["virtual_pipeline_model_parallel_size"] or 1
    ends = [options.get(f"num_layers_in_{end}_pipeline_stage") for end in ("first", "last")]
    account = [options.get(f"account_for_{what}_in_pipeline_split", False) for what in ("embedding", "loss")]
    try:
        if ends != [None, None]:
            layout = PipelineLayout.first_last(*size, vpp, *ends)
        elif any(account):
            layout = PipelineLayout.account(*size, vpp, *account)
        else:
            layout = PipelineLayout.even(*size, vpp)
    except MeshwrightError:
        return None
    return [[layout.chunk(rank, number).count("t") for number in range(vpp)] for rank in range(layout.pp)]


@pytest.fixture(scope="module")
def judged() -> dict[str, list[tuple[dict[str, Any], dict[str, Any]]]]:
    layouts = [draw_layout(seed) for seed in range(LAYOUTS)]
    layouts += [draw_list(seed) for seed in range(LAYOUTS, LAYOUTS + 100)]
    written = [{**case, "layout": layout.string()} for case in layouts if (layout := ours(case)) is not None]
    splits = [draw_split(seed) for seed in range(SPLITS)]
    asked = {"layouts": layouts + written, "splits": splits}
    answer = subprocess.run(
        [sys.executable, str(JUDGE)], input=json.dumps(asked), capture_output=True, text=True, check=True
    )
    said = json.loads(answer.stdout.splitlines()[-1])
    of_layouts = list(zip(asked["layouts"], said["layouts"], strict=True))
    return {
        "layouts": of_layouts[: len(layouts)],
        "written": of_layouts[len(layouts) :],
        "splits": list(zip(splits, said["splits"], strict=True)),
    }


def test_layouts_are_refused_exactly_where_megatron_refuses_them(judged: Any) -> None:
    wrong = [(case, said) for case, said in judged["layouts"] if (ours(case) is None) != ("error" in said)]
    assert wrong == []
    refused = sum("error" in said for _, said in judged["layouts"])
    assert 150 < refused < len(judged["layouts"]) - 150, "the drawn layouts must try both verdicts"


def test_accepted_layouts_hold_what_megatron_reads(judged: Any) -> None:
    for case, said in judged["layouts"]:
        layout = ours(case)
        if layout is not None:
            ranks = [
                [[NAME_OF[item] for item in layout.chunk(rank, number)] for number in range(layout.vpp)]
                for rank in range(layout.pp)
            ]
            assert ranks == said["ranks"], case
            assert layout.mtp_apart == said["mtp_apart"], case


def test_what_is_written_megatron_reads_as_the_same_layout(judged: Any) -> None:
    originals = [said for _, said in judged["layouts"] if "ranks" in said]
    assert [said for _, said in judged["written"]] == originals


def test_splits_by_options_equal_what_megatron_builds(judged: Any) -> None:
    wrong = [
        (options, said) for options, said in judged["splits"] if our_split(options) != said.get("layers")
    ]
    assert wrong == []
    refused = sum("error" in said for _, said in judged["splits"])
    assert 100 < refused < SPLITS - 100, "the drawn splits must try both verdicts"
