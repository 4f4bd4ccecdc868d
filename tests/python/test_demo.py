"""The demo's last line: turns that met a busy machine do not count, and without quiet ones nothing is claimed."""
import importlib.machinery
import importlib.util
import json
import pathlib
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]


def load(path, name):
    loader = importlib.machinery.SourceFileLoader(name, str(ROOT / path))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader(name, loader))
    loader.exec_module(module)
    return module


turns = load("tools/demo_turns", "demo_turns")
table = load("tools/demo_table", "demo_table")
busy_demo = load("bench/busy_demo.py", "busy_demo")


def turn(which, rate, busy=0.0):
    return {"which": which, "samples_per_second": rate, "busy_share": busy, "seconds": 10.0}


@pytest.mark.parametrize("made, pairs", [
    ([turn("slow", 10), turn("tuned", 20), turn("tuned", 22), turn("slow", 11)], [[10, 20], [11, 22]]),
    ([turn("slow", 10), turn("tuned", 3, 0.9), turn("tuned", 21), turn("slow", 11)], [[10, 21]]),  # the busy one is no turn
    ([turn("slow", 4, 0.8), turn("tuned", 20), turn("tuned", 22), turn("slow", 11)], [[11, 22]]),
    ([turn("slow", 10, 0.7), turn("tuned", 20, 0.95)], []),
    ([turn("slow", 10, 0.5), turn("tuned", 20, 0.4)], [[10, 20]]),  # enough quiet steps are left
    ([], []),
])
def test_only_quiet_turns_are_paired(made, pairs):
    assert turns.paired(made) == pairs


def test_the_order_is_fair():
    order = turns.order()
    assert [next(order) for _ in range(8)] == ["slow", "tuned", "tuned", "slow"] * 2


def test_the_last_line():
    promised = {"low": 1.5, "high": 2.5}
    said = table.whole_runs({"pairs": [[10, 20], [12, 24]], "turns": [], "busy_share": 0.1}, promised)
    assert said == "2.00x (11.0 to 22.0 samples/s in 2 turns each; promised 1.50x to 2.50x)"
    said = table.whole_runs({"pairs": [], "turns": [1, 2, 3], "busy_share": 0.63}, promised)
    assert said.startswith("The machine was too busy to tell: it was busy for 63 % of the 3 turns")


@pytest.mark.parametrize("text, holds", [
    ("Everything kept, as a whole run: 2.00x (11.0 to 22.0 samples/s in 2\nturns each; promised 1.50x to 2.50x)\n\nThe page with everything: x", True),
    ("Everything kept, as a whole run: 0.37x (33.7 to 12.6 samples/s in 2 turns each; promised 0.97x to 2.82x)\n\nThe page with everything: x", False),
    ("Everything kept, as a whole run: The machine was too busy to\ntell: it was busy for 63 % of the 3 turns. Run it again.\n\nThe page with everything: x", True),
    ("nothing of the kind", False),
])
def test_the_bench_judges_the_last_line(text, holds):
    assert busy_demo.judge(text)[0] is holds


def test_the_table_needs_only_what_the_demo_left(tmp_path):
    card = {"ledger": {"entries": []}, "promised_ratio": {"low": 1.5, "high": 2.5}, "certificate": {"kind": "none", "reason": "nothing changed."}, "notes": [], "values": {"a": 1}}
    (tmp_path / "card.json").write_text(json.dumps(card))
    (tmp_path / "turns.json").write_text(json.dumps({"pairs": [[10, 20]], "turns": [turn("slow", 10), turn("tuned", 20)], "busy_share": 0.0}))
    done = subprocess.run([sys.executable, str(ROOT / "tools/demo_table"), str(tmp_path)], capture_output=True, text=True, env={"COLUMNS": "60", "PATH": "/usr/bin:/bin"})
    assert done.returncode == 0, done.stderr
    assert busy_demo.judge(done.stdout) == (True, "2.00x (10.0 to 20.0 samples/s in 1 turn each; promised 1.50x to 2.50x)")
