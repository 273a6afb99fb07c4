"""What runs cost, held against published runs and textbook figures."""

import math

import pytest

from meshwright.cluster.catalog import all_gpus
from meshwright.cluster.parse import parse_cluster
from meshwright.errors import LayoutError, QuestionError
from meshwright.planner.economics import (
    Rates,
    best_interval,
    economics,
    enough_nodes,
    goodput,
    read_price,
    spares_needed,
    useful_share,
    watts_of,
    watts_source,
    young_interval,
)

NO_FAILURES = Rates(gpu_mtbf_hours=math.inf)


def test_deepseek_v3_as_reported():
    # arXiv 2412.19437: a trillion tokens in 180 thousand H800 hours, 3.7 days on 2,048; 2 dollars an hour
    cluster = parse_cluster("2048xH800")
    speed = 1e12 / (180e3 * 3600) * 2048
    found = economics(cluster, speed, Rates(price=2.0, gpu_mtbf_hours=math.inf), tokens=14.8e12)
    assert found.gpu_hours == pytest.approx(180)
    assert found.days / 14.8 == pytest.approx(3.7, abs=0.05)
    assert found.total_gpu_hours == pytest.approx(2_664e3)
    assert found.total_cost == pytest.approx(5.328e6)
    assert found.tokens_per_unit == pytest.approx(1e9 / 360)


def test_llama_3_1_405b_as_reported():
    # model card: 30.84 million H100 hours at 700 W; 15.6 trillion tokens
    speed = 15.6e12 / (30.84e6 * 3600) * 16384
    found = economics(parse_cluster("16384xH100"), speed, NO_FAILURES, tokens=15.6e12)
    assert found.watts == 700
    assert found.total_gpu_hours == pytest.approx(30.84e6)
    assert found.total_kwh == pytest.approx(30.84e6 * 0.7)
    assert found.cost is None
    with_building = economics(parse_cluster("16384xH100"), speed, Rates(pue=1.5), tokens=15.6e12)
    assert with_building.total_kwh > 1.5 * found.total_kwh


def test_llama_3_kept_more_than_nine_tenths_of_its_time():
    # arXiv 2407.21783, 3.3.4: 419 unexpected interruptions in 54 days, effective training time above 90 %
    good = goodput(parse_cluster("16384xH100"), Rates())
    assert good.mtbf_seconds == pytest.approx(54 * 86400 / 419, rel=0.03)
    assert 0.85 < good.value < 0.95
    assert goodput(parse_cluster("16384xH100"), Rates(checkpoint_seconds=10, restart_seconds=300)).value > 0.9


def test_young_by_hand_and_daly_against_the_minimum_itself():
    assert young_interval(300, 86400) == 7200
    for delta, mtbf in ((60, 11_000), (300, 7_200), (600, 3_600)):
        times = [10.0 * n for n in range(1, 2000)]
        best = max(times, key=lambda tau: useful_share(tau, delta, 300, mtbf))
        assert useful_share(best_interval(delta, mtbf), delta, 300, mtbf) == pytest.approx(
            useful_share(best, delta, 300, mtbf), rel=1e-3
        )


def test_the_useful_share_agrees_with_counting_failures_one_by_one():
    rng_state, mtbf, tau, delta, restart, work = 12345, 5_000.0, 900.0, 60.0, 300.0, 900.0 * 4000
    import random

    random.seed(rng_state)
    wall = done = 0.0
    until = random.expovariate(1 / mtbf)
    recovering = 0.0
    while done < work:
        need = recovering + tau + delta
        if until >= need:
            wall, until, done, recovering = wall + need, until - need, done + tau, 0.0
        else:
            wall, until, recovering = wall + until, random.expovariate(1 / mtbf), restart
    assert useful_share(tau, delta, restart, mtbf) == pytest.approx(work / wall, rel=0.03)


def test_spares_cover_nodes_under_repair():
    # a mean of one under repair, none to spare: exp(-1); Poisson tables: P(<=3) = 0.981
    assert enough_nodes(1.0, 0) == pytest.approx(math.exp(-1))
    assert enough_nodes(1.0, 3) == pytest.approx(0.981, abs=5e-4)
    assert enough_nodes(0.0, 0) == 1.0
    rates = Rates(gpu_mtbf_hours=50_000, repair_hours=24)
    cluster = parse_cluster("2048xH100")
    spares = spares_needed(cluster, rates)
    assert spares == 4
    alone, spared = (
        economics(cluster, 1e6, rates),
        economics(cluster, 1e6, Rates(gpu_mtbf_hours=50_000, repair_hours=24, spare_nodes=spares)),
    )
    assert spared.goodput.availability > 0.99
    assert spared.gpus_paid == 2048 + 4 * 8
    assert spared.gpu_hours < alone.gpu_hours


def test_every_gpu_has_a_power_with_a_source_or_says_that_it_has_none():
    unknown = {gpu.name for gpu in all_gpus() if watts_of(gpu) is None}
    assert unknown == {"VR200-NVL72", "Ascend-910B", "Ascend-910C"}
    assert all(watts_source(gpu) for gpu in all_gpus() if gpu.name not in unknown)
    assert economics(parse_cluster("72xVR200"), 1e6).kwh is None
    assert economics(parse_cluster("72xVR200"), 1e6, Rates(watts=2000)).kwh is not None


@pytest.mark.parametrize(
    ("rates", "says"),
    [
        ({"pue": 0.5}, "PUE is 0.5"),
        ({"price": -1.0}, "price is -1.0"),
        ({"watts": math.nan}, "watts is nan"),
        ({"spare_nodes": -1}, "-1 spare nodes"),
        ({"restart_seconds": -3.0}, "restart_seconds is -3.0"),
        ({"checkpoint_interval": 0.0}, "checkpoint_interval is 0.0"),
    ],
)
def test_rates_that_make_no_sense_are_refused(rates: dict[str, float], says: str):
    with pytest.raises(QuestionError, match=says):
        Rates(**rates)


def test_a_run_that_failures_stop_is_refused_with_the_numbers():
    with pytest.raises(LayoutError, match="a failure every 4 s, checkpoints of 60 s and restarts of 3,600 s"):
        economics(parse_cluster("100000xH100"), 1e6, Rates(gpu_mtbf_hours=100, restart_seconds=3600))


def test_a_price_may_depend_on_the_kind_of_gpu():
    h100, b200 = (parse_cluster(f"8x{kind}").gpu for kind in ("H100", "B200"))
    assert (read_price("2.5", h100), read_price("H100=2.5,B200=6", b200)) == (2.5, 6.0)
    assert read_price("B200=6", h100) is None
    for text, says in (("cheap", "'cheap': write 2.5"), ("H1000=2", "unknown GPU"), ("-1", "price is -1")):
        with pytest.raises(QuestionError, match=says):
            read_price(text, h100)
