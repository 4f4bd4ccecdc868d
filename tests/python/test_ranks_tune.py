"""The tuner over ranks: ways to divide the machine and to send gradients, raced as processes and proved."""
import json
import os

import pytest
from rank_jobs import make_home, run, start


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    return make_home(tmp_path_factory.mktemp("ranks"))


def tuned(home, *words):
    process = start(home, "--json", "tune", "vae.yaml", "model.train_ds.batch_size=24", *words)
    out, err = process.communicate(timeout=120)
    assert process.returncode == 0, err
    return json.loads(out)


def rows(answer):
    return {(e["field"], e["to"]): e for e in answer["card"]["ledger"]["entries"]}


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="two ranks need two cores")
def test_ranks_buckets_and_compression_are_switches(home, tmp_path):
    answer = tuned(home, "trainer.devices=2", "--ranks", "1,2,64", "--budget", "25s", "--allow", "numerics", "--out", tmp_path / "tuned.yaml")
    ledger = rows(answer)
    cores = len(os.sched_getaffinity(0))
    one = ledger["trainer.devices x trainer.intra_op_threads", f"1 x {cores}"]
    assert one["from"] == "2 x 1" and one["measured"]["blocks"] >= 1 and 0.01 < one["measured"]["ratio"] < 100
    many = ledger["trainer.devices x trainer.intra_op_threads", "64 x 1"]
    assert "only take turns" in many["reason"] and many.get("measured") is None
    assert any(field == "trainer.strategy.compression" for field, _ in ledger)
    changed = [e for e in ledger.values() if e["in_best"]]
    values = dict(answer["card"]["values"]) if isinstance(answer["card"]["values"], list) else answer["card"]["values"]
    assert bool(values) == bool(changed)
    if changed:
        assert answer["card"]["certificate"]["kind"] in ("identical", "within noise", "not worse")
    err = run(home, "train", tmp_path / "tuned.yaml", f"--run-dir={tmp_path}/run", "trainer.max_steps=3")
    ranks = int(values.get("trainer.devices", "2"))
    assert ("starting 2 ranks" in err) == (ranks == 2), err


def test_what_nobody_allowed_waits(home, tmp_path):
    ledger = rows(tuned(home, "--ranks", "1", "--budget", "2s", "--out", tmp_path / "tuned.yaml"))
    reasons = {to: e["reason"] for (field, to), e in ledger.items() if field == "trainer.strategy.compression"}
    assert reasons == {"bf16": "one process sends nothing", "fp16": "one process sends nothing"}
    ledger = rows(tuned(home, "trainer.devices=2", "--ranks", "2", "--budget", "2s", "--out", tmp_path / "tuned.yaml"))
    assert all("--allow numerics" in e["reason"] for (field, _), e in ledger.items() if field == "trainer.strategy.compression"), ledger


def test_ranks_that_are_none(home):
    assert "numbers of ranks such as 1,2,4" in run(home, "tune", "vae.yaml", "--ranks", "two", code=2)
