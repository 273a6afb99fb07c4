"""A cache of searches returns what a search would, for equal content only."""

import subprocess
import sys
from dataclasses import replace

from meshwright.cluster.parse import parse_cluster
from meshwright.cost.question import Question
from meshwright.job.spec import Execution, Job
from meshwright.model.catalog import find
from meshwright.planner.cache import SearchCache, content_key
from meshwright.planner.space import Axes, Range, free_flags

ASKED = Question(
    model=find("llama-3.2-1b"), cluster=parse_cluster("8xH100"), job=Job(seq_length=4096, global_batch=64)
)
AXES = Axes(flags=free_flags(Execution(overlaps=frozenset({"dp", "tp", "ep"}))))


def test_the_same_content_is_found_again_and_other_content_is_not():
    cache = SearchCache()
    first = cache.search(ASKED, AXES)
    assert cache.search(replace(ASKED, model=find("llama-3.2-1b")), replace(AXES)) is first
    other = cache.search(replace(ASKED, job=replace(ASKED.job, global_batch=128)), AXES)
    assert other is not first
    assert cache.search(ASKED, replace(AXES, bounds={"tp": Range(most=2)})) is not first
    assert len(cache) == 3


def test_every_part_of_a_question_changes_the_key():
    gpu = replace(ASKED.cluster.gpu, hbm=1e12)
    changed = [
        replace(ASKED, cluster=replace(ASKED.cluster, gpu=gpu)),
        replace(ASKED, job=replace(ASKED.job, precision="fp16")),
        replace(ASKED, stack=replace(ASKED.stack, release="25.09")),
        replace(ASKED, calibration=replace(ASKED.calibration, memory_band=0.2)),
        replace(ASKED, model=replace(ASKED.model, hidden=4096)),
    ]
    assert len({content_key(one, AXES) for one in (ASKED, *changed)}) == 6


def test_a_key_is_the_same_in_another_process():
    code = (
        "from meshwright.planner.cache import content_key\n"
        "from meshwright.job.spec import Execution\n"
        "print(content_key(Execution(overlaps=frozenset({'tp', 'dp', 'ep'}))))"
    )
    keys = {
        subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, check=True,
            env={"PYTHONHASHSEED": seed, "PYTHONPATH": ":".join(sys.path)},
        ).stdout
        for seed in ("1", "2", "3")
    }  # fmt: skip
    assert keys == {content_key(Execution(overlaps=frozenset({"ep", "dp", "tp"}))) + "\n"}


def test_the_oldest_searches_go_first_and_interrupted_ones_are_not_kept():
    cache = SearchCache(most=2)
    found = [
        cache.search(replace(ASKED, job=replace(ASKED.job, global_batch=batch)), AXES)
        for batch in (8, 16, 32)
    ]
    assert len(cache) == 2
    assert cache.search(replace(ASKED, job=replace(ASKED.job, global_batch=32)), AXES) is found[2]
    assert cache.search(replace(ASKED, job=replace(ASKED.job, global_batch=8)), AXES) is not found[0]

    def stop(done: int, whole: int) -> None:
        if done > 0.8 * whole:
            raise KeyboardInterrupt

    fresh = SearchCache()
    assert fresh.search(ASKED, AXES, stop).partial
    assert len(fresh) == 0


def test_few_rows_are_kept_where_memory_is_short():
    cache = SearchCache(most_rows=10)
    cache.search(ASKED, AXES)
    cache.search(replace(ASKED, job=replace(ASKED.job, global_batch=128)), AXES)
    assert len(cache) == 1
