"""A number format is priced only where the GPU multiplies in it and the engine takes it there."""

from __future__ import annotations

from dataclasses import replace

import pytest

from meshwright.cluster.catalog import find_gpu
from meshwright.cost.precision import recipe_for
from meshwright.errors import QuestionError


@pytest.mark.parametrize(
    ("gpu", "yes", "no"),
    [
        ("A100", "bf16", "fp8"),
        ("H100", "fp8-current", "mxfp8"),
        ("H100", "fp8-block", "nvfp4"),
        ("L40S", "fp8", "fp8-block"),
        ("B200", "nvfp4", None),
        ("GB300", "mxfp8", None),
        ("RTX-PRO-6000", "fp8", "mxfp8"),
        ("MI250X", "bf16", "fp8"),
        ("MI355X", "mxfp8", "nvfp4"),
    ],
)
def test_number_formats_follow_the_architecture(gpu, yes, no):
    card = find_gpu(gpu)
    assert recipe_for(yes, card).name == yes
    if no:
        with pytest.raises(QuestionError, match=f"no tensor cores for {no}; it can do .*{yes}"):
            recipe_for(no, card)


def test_a_gpu_of_unknown_architecture_does_what_it_has_a_peak_for():
    own = replace(find_gpu("H100"), architecture="unknown")
    assert recipe_for("mxfp8", own).gemm == "fp8"
    with pytest.raises(QuestionError, match="no tensor cores for nvfp4"):
        recipe_for("nvfp4", own)
