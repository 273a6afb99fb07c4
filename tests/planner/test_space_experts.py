"""Without expert parallelism experts are divided as the dense layers are, unless somebody asks otherwise."""

from __future__ import annotations

from meshwright.api.asking import Options, ask, axes_of
from meshwright.planner.space import Axes, geometries


def degrees(axes: Axes) -> set[tuple[int, int, int]]:
    table = geometries(ask("mixtral-8x7b", "16xH100", Options()).question, axes).table
    return set(zip(table.tp.tolist(), table.ep.tolist(), table.etp.tolist(), strict=True))


def test_the_search_leaves_out_what_megatron_core_before_0_19_trains_wrongly() -> None:
    found = degrees(Axes())
    assert {etp == tp for tp, ep, etp in found if ep == 1} == {True}
    assert {(2, 1, 2), (2, 2, 1), (8, 8, 1)} <= found
    assert (2, 1, 1) in degrees(Axes(etp=(1,)))  # asked for: the rules of the version decide


def test_an_estimate_that_names_no_etp_takes_tp_where_ep_is_1() -> None:
    for ep, etp in ((1, 2), (4, 1)):
        options = Options(tp=2, ep=ep)
        assert axes_of(ask("mixtral-8x7b", "16xH100", options), options, fixed=True).etp == (etp,)
