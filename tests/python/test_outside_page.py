"""How bench/doctor_outside.py judges: which runs are controls, which alarms are false, which faults count. Tables, nothing is run."""
import pathlib
import sys

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "bench"))
from outside.jobs import LIFTED, TASKS  # noqa: E402
from outside.page import false_alarm, judged, lifted_gains, shown_healthy, summary  # noqa: E402

COMPUTE = {"verdict": "compute-bound", "detail": "backward", "gain": 0.0, "sentence": ""}
SMALL = {"verdict": "small-batch-bound", "detail": "batch_size", "gain": 0.07, "sentence": ""}
CONTENDED = {"verdict": "contended", "detail": "CPU", "gain": 0.5, "sentence": ""}


def run(name, rate, place=0, answer=COMPUTE, strangers=0.0, task="speech", repeat=0):
    return {"key": [repeat, task, name, place], "rate": rate, "strangers": strangers, "answer": answer}


def job(lifted, answer=COMPUTE, **more):
    """A healthy job of 100 samples a second, and what each change makes of it."""
    return [run("healthy", 100, 0, answer, **more), *(run(f"lifted {name}", rate, **more) for name, rate in lifted.items()), run("healthy", 100, 1, answer, **more)]


NOTHING = {name: 101 for name, (changes, _) in LIFTED.items() if "speech" in changes}


def test_every_change_belongs_to_tasks_that_there_are():
    for changes, verdicts in LIFTED.values():
        assert set(changes) <= set(TASKS) and verdicts


def test_an_alarm_is_false_only_where_lifting_what_it_names_gains_nothing():
    gains = lifted_gains(job({**NOTHING, "twice the batch": 112}))
    assert gains["speech"]["twice the batch"] == pytest.approx(0.12)
    assert not false_alarm("speech", SMALL, gains)
    assert not false_alarm("speech", COMPUTE, gains)
    assert false_alarm("speech", CONTENDED, gains)
    assert false_alarm("speech", {**SMALL, "verdict": "padding-bound"}, gains)  # another cause than the one that is there
    assert false_alarm("speech", SMALL, lifted_gains(job(NOTHING)))
    assert false_alarm("speech", SMALL, {})  # not measured: no excuse


def test_a_control_is_healthy_only_where_that_was_measured():
    assert shown_healthy("speech", lifted_gains(job(NOTHING)))
    assert not shown_healthy("speech", lifted_gains(job({**NOTHING, "twice the batch": 112})))
    assert not shown_healthy("speech", lifted_gains(job({"twice the batch": 101})))  # the rest is not known
    assert not shown_healthy("speech", {})
    found = summary(job(NOTHING, SMALL) + job({**NOTHING, "twice the batch": 112}, SMALL, task="scenes"))
    assert (found["controls"], found["undisturbed"], found["false_alarms"]) == (2, 4, 2)


def test_runs_beside_strangers_say_nothing():
    found = summary(job(NOTHING, CONTENDED, strangers=0.3))
    assert found["undisturbed"] == found["false_alarms"] == 0 and found["lifted"] == {}


def test_a_fault_counts_where_each_healthy_run_beside_it_is_faster():
    def counts(before, after, strangers=0.0):
        rows = judged([run("healthy", before, 1), run("busy process", 100, 1, CONTENDED, strangers), run("healthy", after, 2)])
        return rows[0]["counts"], round(rows[0]["gain"], 3), rows[0]["right"]
    assert counts(110, 108) == (True, 0.09, True)
    assert counts(116, 101)[0] is False  # one of them says that nothing was lost
    assert counts(110, 108, strangers=0.2)[0] is False
