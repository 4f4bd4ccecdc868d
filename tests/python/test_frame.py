"""The benchmark frame itself: interleaving, ratios, and peers that fail."""
import pathlib
import sys

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "bench"))
import frame


def fake(name, value):
    return lambda: {"rate": value}


def make(variants, **bar):
    return frame.Workload("w", "s", variants, [frame.Bar("rate", "redline", "peer|other", **bar)], rounds=3)


def test_two_variants_run_abba():
    assert frame.interleaved_order(["a", "b"], 0) == ["a", "b", "b", "a"]
    assert frame.interleaved_order(["a", "b"], 1) == ["b", "a", "a", "b"]


def test_the_best_peer_counts():
    workload = make({"redline": fake("r", 30.0), "peer": fake("p", 5.0), "other": fake("o", 10.0)}, at_least=2.5)
    row = frame.judge(workload, frame.measure(workload, log=lambda _: None))[0]
    assert row["reference"] == "other" and row["ratio"] == pytest.approx(3.0) and row["met"]


def test_a_missed_bar_is_missed():
    workload = make({"redline": fake("r", 10.0), "peer": fake("p", 9.0), "other": fake("o", 8.0)}, at_least=2.0)
    assert not frame.judge(workload, frame.measure(workload, log=lambda _: None))[0]["met"]


def test_smaller_is_better_inverts():
    workload = make({"redline": fake("r", 2.0), "peer": fake("p", 8.0), "other": fake("o", 6.0)}, at_least=2.0, smaller_is_better=True)
    row = frame.judge(workload, frame.measure(workload, log=lambda _: None))[0]
    assert row["reference"] == "other" and row["ratio"] == pytest.approx(3.0)


def test_a_peer_that_fails_is_a_failure():
    workload = make({"redline": fake("r", 1.0), "peer": ["false"], "other": fake("o", 1.0)}, at_least=1.0)
    with pytest.raises(RuntimeError):
        frame.measure(workload, log=lambda _: None)
