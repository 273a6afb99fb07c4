"""How long the memory of many layouts takes."""

import time

import numpy as np

from meshwright.cluster.parse import parse_cluster
from meshwright.cost.memory import memory
from meshwright.cost.question import Question
from meshwright.cost.stages import distinct_stages
from meshwright.job.spec import Execution, Job
from meshwright.layout.pipeline import split_table
from meshwright.layout.table import LayoutTable
from meshwright.model.catalog import find

WANTED = 100_000


def table(question: Question) -> LayoutTable:
    """Degrees of DeepSeek-V3 on 2,048 GPUs, as often as it takes to fill 100,000 rows."""
    rows = [
        (tp, pp, vpp, cp, ep, mbs)
        for tp in (1, 2, 4, 8, 16) for cp in (1, 2, 4, 8, 16, 32) for pp in (1, 2, 4, 8, 16)
        for vpp in ((1,) if pp == 1 else (1, 2, 3)) for ep in (1, 2, 4, 8, 16, 32, 64) for mbs in (1, 2, 4, 8)
        if 2048 % (pp * np.lcm(tp * cp, ep)) == 0
    ]  # fmt: skip
    columns = np.array(rows, dtype=np.int64)[np.arange(WANTED) * len(rows) // WANTED].T
    tp, pp, vpp, cp, ep, mbs = columns
    execution = Execution()
    kinds, code = np.unique(np.stack([pp, vpp]), axis=1, return_inverse=True)
    splits, codes = split_table(
        question.model, [(int(p), int(v), None, execution.recompute) for p, v in kinds.T]
    )
    return LayoutTable(
        world=np.full(WANTED, 2048), gbs=np.full(WANTED, 16384), tp=tp, pp=pp, vpp=vpp, cp=cp, ep=ep,
        etp=np.ones_like(tp), mbs=mbs, sp=tp > 1, execution=np.zeros(WANTED, dtype=np.int64),
        executions=(execution,), split=codes[code.reshape(-1)], splits=splits,
    )  # fmt: skip


def test_100_000_layouts_take_less_than_a_second():
    question = Question(
        model=find("deepseek-v3"),
        cluster=parse_cluster("2048xH100"),
        job=Job(seq_length=4096, global_batch=16384),
    )
    layouts = table(question)
    view = distinct_stages(layouts.splits)
    memory(question, layouts.rows(slice(0, 100)), view)  # reads its files once

    def seconds() -> float:
        start = time.perf_counter()
        for piece in layouts.chunks(4096):
            memory(question, piece, view)
        return time.perf_counter() - start

    assert min(seconds() for _ in range(3)) < 1.0
