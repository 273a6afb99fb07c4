"""Own runs move the predictions of that kind of GPU towards what was measured, and no other's."""

import json
from dataclasses import replace

import numpy as np
import pytest

import meshwright as mw
from meshwright.api import profiling as api
from meshwright.cost.calibration import default_calibration
from meshwright.cost.observing import Observation, predicted
from meshwright.planner.again import one_row, read_again
from meshwright.verify.profile.learned import (
    MeasuredRun,
    calibration_file,
    calibration_for,
    learn,
    load_learned,
)

SLOWER = 1.25


@pytest.fixture(scope="module")
def answers():
    layouts = [{"tp": 2}, {"tp": 4}, {"tp": 2, "pp": 2}]
    return [mw.estimate("llama3-8b", "16xH100", mw.Options(**layout)) for layout in layouts]


def seconds(answer, calibration):
    question, layout, execution, pipeline = read_again(answer.as_dict())
    seen = Observation(question=question, table=one_row(question, layout, execution, pipeline), seconds=1.0)
    return float(predicted([seen], calibration)[0])


def log_of(folder, answer, name, factor=SLOWER):
    """A log of the run that is so many times slower than predicted."""
    row, step = answer.layout, answer.time.step_seconds * factor
    head = (
        f"using world size: 16, data-parallel size: {row.dp}, context-parallel size: 1, "
        f"tensor-model-parallel size: {row.tp}, pipeline-model-parallel size: {row.pp}\n"
    )
    lines = [
        f" iteration {n}/ 8 | elapsed time per iteration (ms): {1e3 * step:.1f} | lm loss: 2.0E+00 |\n"
        for n in range(1, 9)
    ]
    path = folder / name
    path.write_text(head + "".join(lines))
    return path


def test_predictions_move_to_what_was_measured(tmp_path, answers):
    plans = [answer.as_dict() for answer in answers]
    logs = [log_of(tmp_path, answer, f"{n}.log") for n, answer in enumerate(answers)]
    (learned,) = api.calibrate([api.run_of_log(log, plans) for log in logs], tmp_path / "c.json")
    assert learned.runs == 3
    assert learned.before == pytest.approx(np.log(SLOWER), abs=0.01)
    assert learned.after < learned.before / 4
    own = calibration_for(answers[0].question.cluster.gpu.name, tmp_path / "c.json")
    assert seconds(answers[0], own) == pytest.approx(SLOWER * answers[0].time.step_seconds, rel=0.06)
    assert own.time_band[0] < default_calibration().time_band[0]
    assert own.source.startswith("calibrated with 3 runs on H100")


def test_other_gpus_keep_what_ships(tmp_path, answers):
    run = MeasuredRun(answer=answers[0].as_dict(), seconds=9.0, digest="a")
    learn([run], tmp_path / "c.json")
    assert calibration_for("B200", tmp_path / "c.json") == default_calibration()


def test_the_same_log_counts_once_and_later_ones_add(tmp_path, answers):
    path = tmp_path / "c.json"
    first = MeasuredRun(answer=answers[0].as_dict(), seconds=9.0, digest="a")
    learn([first], path)
    learn([first], path)
    assert load_learned(first.gpu, path).runs == 1
    learn([replace(first, digest="b", answer=answers[1].as_dict())], path)
    assert load_learned(first.gpu, path).runs == 2


def test_a_log_of_another_plan_is_refused_with_the_difference(tmp_path, answers):
    log = log_of(tmp_path, answers[1], "run.log")
    with pytest.raises(mw.QuestionError, match="the log shows tp=4, the plan tp=2"):
        api.run_of_log(log, [answers[0].as_dict()])


def test_a_log_without_step_times_is_refused(tmp_path, answers):
    (tmp_path / "run.log").write_text("[rank0]: torch.OutOfMemoryError: CUDA out of memory\n")
    with pytest.raises(mw.QuestionError, match="no step time: out of memory"):
        api.run_of_log(tmp_path / "run.log", [answers[0].as_dict()])


def test_where_a_calibration_is_kept(tmp_path):
    home = {"XDG_CONFIG_HOME": "/config"}
    assert str(calibration_file(home, tmp_path)) == "/config/meshwright/calibration.json"
    (tmp_path / "meshwright-calibration.json").write_text("{}")
    assert calibration_file(home, tmp_path).parent == tmp_path
    assert str(calibration_file({"MESHWRIGHT_CALIBRATION": "/x.json"}, tmp_path)) == "/x.json"


@pytest.mark.parametrize(
    "text",
    ["{", "[]", '{"gpus": 3}', '{"gpus": {"H100": {"runs": []}}}',
     json.dumps({"gpus": {"H100": {"runs": [], "factors": {"all": -1}, "time_band": [1, 1], "before": 1,
                                   "after": 1}}})],
)  # fmt: skip
def test_a_broken_file_is_an_error_that_names_it(tmp_path, text):
    path = tmp_path / "c.json"
    path.write_text(text)
    with pytest.raises(mw.QuestionError, match=r"c\.json"):
        load_learned("H100", path)
