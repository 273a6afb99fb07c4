"""From plans to short runs, without a scheduler."""

from typing import ClassVar

import pytest

import meshwright as mw
from meshwright.api import profiling as api
from meshwright.verify.profile.learned import MeasuredRun


@pytest.fixture(scope="module")
def answer():
    return mw.estimate("llama3-8b", "16xH100", mw.Options(tp=4, pp=2))


def test_a_short_run_logs_every_step_and_stops(answer):
    (run,) = api.candidates([answer], iterations=9)
    words = run.script.split()
    assert words[words.index("--train-iters") + 1] == "9"
    assert words[words.index("--log-interval") + 1] == "1"
    assert "#SBATCH --nodes=2" in run.script
    assert run.degrees == {"tp": 4, "pp": 2, "cp": 1, "ep": 1, "dp": 2}


def test_kubernetes_runs_have_names_of_their_own_and_are_not_restarted(answer):
    (run,) = api.candidates([answer], scheduler="command", language="kubernetes")
    assert "name: llama-3-8b-tp4-pp2-dp2" in run.script
    assert "restartPolicy: Never" in run.script
    assert "OnFailure" not in run.script


def test_ones_own_command_keeps_its_shell_and_gets_the_degrees(answer):
    command = "T=${TMPDIR} train --tp {tp} --gpus {world} {unknown} {arguments}"
    (run,) = api.candidates([answer], scheduler="local", command=command)
    assert "T=${TMPDIR} train --tp 4 --gpus 16 {unknown}" in run.script
    assert "--tensor-model-parallel-size 4" in run.script
    assert "#SBATCH" not in run.script


def test_scripts_are_written_without_a_scheduler(answer, tmp_path):
    store = api.start(api.candidates([answer]), tmp_path / "p")
    (path,) = api.scripts_only(store)
    assert path.read_text() == store.records()[0].candidate.script
    assert api.ranking_of(store).open == 1


def test_layouts_that_cannot_start_are_not_measured():
    broken = mw.estimate("llama3-8b", "8xH100", mw.Options(tp=3))
    with pytest.raises(mw.LayoutError, match="none of the layouts can start"):
        api.candidates([broken])


def test_a_run_faster_than_the_card_is_not_learned_from(answer, tmp_path):
    run = MeasuredRun(answer=answer.as_dict(), seconds=0.01, digest="a", source="run.log")
    with pytest.raises(mw.QuestionError, match="at its peak"):
        api.calibrate([run], tmp_path / "c.json")
    assert not (tmp_path / "c.json").exists()


@pytest.mark.parametrize(
    ("model", "options", "differs"),
    [("llama3-8b", {"tp": 4}, []), ("mixtral-8x7b", {"tp": 4, "ep": 4, "etp": 1}, ["etp"])],
)
def test_the_etp_that_a_log_states_counts_for_experts_only(model, options, differs):
    class Log:
        degrees: ClassVar = {"tp": 4, "etp": 4}
        world = 16

    plan = mw.estimate(model, "16xH100", mw.Options(**options)).as_dict()
    assert [row.split("=")[0].split()[-1] for row in api._differences(plan, Log)] == differs


def test_a_profile_reports_measured_beside_predicted(answer, tmp_path):
    from rich.console import Console

    from meshwright.report.profiling import profile_screen

    step = answer.time.step_seconds
    lines = "\n".join(
        f"echo ' iteration {n}/ 6 | elapsed time per iteration (ms): {step * 1050:.1f} | lm loss: 2.0E+00 |'"
        for n in range(1, 7)
    )
    runs = api.candidates([answer], scheduler="local", command=lines)
    store = api.start(runs, tmp_path / "p", {"scheduler": "local"})
    result = api.profile(store, poll=0.05)
    assert result.best.off == pytest.approx(0.05, abs=1e-4)
    assert result.best.in_band
    console = Console(width=80, record=True, file=open("/dev/null", "w"))  # noqa: SIM115
    console.print(profile_screen(result))
    shown = console.export_text()
    assert "tp4 pp2 dp2" in shown
    assert "+5%" in shown
    assert "measured" in shown
    assert api.runs_of_profile(store)[0].seconds == result.best.measured
