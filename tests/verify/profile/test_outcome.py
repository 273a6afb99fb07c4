"""The cause that comes first is what a failed run is called."""

import pytest

from meshwright.verify.profile.outcome import outcome_of
from meshwright.verify.profile.runs import Candidate
from meshwright.verify.profile.schedulers import State

STEP = " iteration {0}/ 4 | elapsed time per iteration (ms): {1} | lm loss: 2.0E+00 |\n"
GOOD = "".join(STEP.format(n, ms) for n, ms in ((1, 9000), (2, 510.0), (3, 500.0), (4, 505.0)))
OOM = "[rank5]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 1.00 GiB\n"
SCANCEL = "slurmstepd-n1: error: *** JOB 7 ON n1 CANCELLED AT 2026-01-01T00:00:00 ***\n"
NCCL = "[rank1]:[E] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=7)\n"


@pytest.mark.parametrize(
    ("text", "state", "status", "limit", "kind"),
    [
        (GOOD, "ended", 0, None, "measured"),
        (GOOD, "ended", 0, 60.0, "measured"),
        (GOOD[:200], "ended", 0, None, "incomplete"),
        ("", "ended", 0, None, "incomplete"),
        (GOOD + OOM, "failed", 1, None, "oom"),
        (GOOD[:90] + "\n" + OOM + SCANCEL, "cancelled", None, 60.0, "oom"),
        (GOOD[:90], "cancelled", None, 60.0, "hang"),
        (GOOD[:90] + "\n" + NCCL, "failed", 1, None, "hang"),
        (GOOD[:90] + "\n" + SCANCEL, "cancelled", 143, None, "cancelled"),
        (GOOD[:90], "node-lost", None, None, "node-lost"),
        (GOOD[:90], "timeout", None, None, "hang"),
        (GOOD[:90], "oom", 137, None, "oom"),
        (GOOD[:90], "gone", None, None, "lost"),
        (GOOD[:90] + "\nValueError: no data\n", "failed", 1, None, "crashed"),
        (GOOD.replace("2.0E+00", "nan"), "ended", 0, None, "nan"),
    ],
)
def test_what_came_of_a_run(tmp_path, text, state, status, limit, kind):
    log = tmp_path / "run.log"
    log.write_text(text)
    candidate = Candidate(name="x", script="")
    found = outcome_of(candidate, log, State(state, state), status, limit=limit, iterations=4)
    assert found.kind == kind
    assert found.why or kind == "measured"


def test_the_first_steps_do_not_count(tmp_path):
    log = tmp_path / "run.log"
    log.write_text(GOOD)
    found = outcome_of(Candidate(name="x", script=""), log, State("ended"), 0)
    assert (found.seconds, found.fastest, found.slowest) == (0.505, 0.5, 0.51)
