"""The doctor about what is around a run: real faults from outside on a tiny job, and machines that show little. The whole bench is bench/doctor_outside.py;
here each piece of evidence is shown to be seen, and not to be seen without its cause."""
import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import threading
import time

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
REDLINE = os.environ.get("REDLINE", str(ROOT / "build/redline"))
sys.path.insert(0, str(ROOT / "bench"))
JOB = [str(ROOT / "recipes/convnext_small.yaml"), "model.train_ds.synth.num=400", "model.validation_ds.synth.num=400", "trainer.max_steps=100000", "trainer.max_epochs=-1",
       "trainer.limit_val_batches=0", "trainer.num_sanity_val_steps=0", "trainer.max_time=3s", "trainer.enable_progress_bar=false", "model.train_ds.batch_size=8", "model.train_ds.num_workers=1"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    made = tmp_path_factory.mktemp("outside")
    done = subprocess.run([REDLINE, "-q", "train", *JOB, "trainer.max_steps=1", "--run-dir", "first"], cwd=made, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return made


def train(folder, name, *words, prefix=(), environment={}, beside=None):
    run = folder / name
    job = subprocess.Popen([*prefix, REDLINE, "-q", "train", *JOB, *words, "--run-dir", str(run)], cwd=folder, env={**os.environ, **environment}, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    if beside:
        threading.Thread(target=beside, args=(job,), daemon=True).start()
    _, said = job.communicate(timeout=120)
    assert job.returncode == 0, said
    return run


def doctor(run):
    done = subprocess.run([REDLINE, "--json", "doctor", str(run)], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)["runs"][0]


def gain(found, limit, detail=None):
    return max([score["gain"] for score in found["diagnosis"]["scores"] if score["limit"] == limit and detail in (None, score["detail"])], default=0.0)


@pytest.fixture(scope="module")
def plain(folder):
    return doctor(train(folder, "plain"))


def test_a_plain_run_is_blamed_on_nothing_outside(plain):
    around = plain["surroundings"]
    assert around["seconds"] > 1 and 0 < around["own_cores"] <= around["cores"] + 0.1
    for limit in ("stop-and-go", "throttled", "slow disk", "swapping", "pinned"):
        assert gain(plain, limit) < 0.05, plain["diagnosis"]["scores"]
    assert 0.3 < around["gigahertz"] < 10


def test_stops_are_seen(folder, plain):
    def stop_and_go(job):
        while job.poll() is None:
            time.sleep(0.1)
            try:
                os.kill(job.pid, signal.SIGSTOP)
                time.sleep(0.1)
                os.kill(job.pid, signal.SIGCONT)
            except ProcessLookupError:
                return
    found = doctor(train(folder, "stops", beside=stop_and_go))
    assert 0.35 < found["surroundings"]["stopped_share"] < 0.65
    assert plain["surroundings"]["stopped_share"] < 0.1
    assert gain(found, "stop-and-go") > 0.4
    stopped = [score for score in found["diagnosis"]["scores"] if score["limit"] == "stop-and-go"][0]
    assert "could run" in stopped["evidence"] and "cpulimit" in stopped["cure"]


def test_an_affinity_is_seen(folder):
    cores = sorted(os.sched_getaffinity(0))
    if len(cores) < 2:
        pytest.skip("one core")
    found = doctor(train(folder, "pinned", prefix=["taskset", "-c", str(cores[0])]))
    assert gain(found, "pinned") > 0.05 and found["surroundings"]["cores"] == 1


def test_a_quota_is_seen_with_its_value(folder):
    from outside.faults import cgroup, own_group
    if cgroup("cpu") is None:
        pytest.skip("no cgroup that may be written")
    with own_group("cpu", {"cpu.cfs_period_us": 100000, "cpu.cfs_quota_us": 60000}) as group:
        found = doctor(train(folder, "quota", prefix=["sh", "-c", 'echo $$ > "$0/cgroup.procs"; exec "$@"', str(group)]))
    assert found["surroundings"]["throttled_cores"] > 0.05
    assert gain(found, "throttled") > 0.2
    assert "0.60 cores" in [score["evidence"] for score in found["diagnosis"]["scores"] if score["limit"] == "throttled"][0]


def shim(folder):
    from outside.faults import built
    return str(built(ROOT / "tests/faults/shim.c", folder / "shim.so", "-shared", "-fPIC", "-ldl"))


def test_slow_reads_are_the_disks(folder, plain):
    slow = {"LD_PRELOAD": shim(folder), "SHIM_PATH": "redline/synth", "SHIM_CALLS": "read", "SHIM_DELAY_US": "20000"}
    found = doctor(train(folder, "reads", environment=slow))
    assert found["loader_worker_seconds"]["read"] > 5 * plain["loader_worker_seconds"]["read"]
    assert gain(found, "slow disk", "reads") > 0.05, found["diagnosis"]["scores"]
    assert gain(found, "data-bound") < gain(found, "slow disk", "reads")  # explained by it


def test_slow_syncs_are_the_disks(folder):
    words = ["exp_manager.checkpoint_callback_params.every_n_train_steps=5"]
    slow = {"LD_PRELOAD": shim(folder), "SHIM_PATH": "checkpoints", "SHIM_CALLS": "fsync", "SHIM_DELAY_US": "150000"}
    found = doctor(train(folder, "syncs", *words, environment=slow))
    assert gain(found, "slow disk", "checkpoints") > 0.05, found["diagnosis"]["scores"]
    plain = doctor(train(folder, "no_syncs", *words))
    assert gain(plain, "slow disk", "checkpoints") < 0.05



def test_what_cannot_be_seen_is_said(folder):
    hide = 'mount -t tmpfs none /proc/pressure && mount -t tmpfs none /sys/fs/cgroup && exec "$@"'
    if subprocess.run(["unshare", "-m", "sh", "-c", hide, "sh", "true"], capture_output=True).returncode != 0:
        pytest.skip("not allowed to mount")
    run = train(folder, "hidden", prefix=["unshare", "-m", "sh", "-c", hide, "sh"])
    found = doctor(run)
    assert "PSI" in found["diagnosis"]["unseen"] and "quota" in found["diagnosis"]["unseen"]
    assert found["surroundings"]["memory_pressure"] is None and found["surroundings"]["throttled_cores"] is None
    text = subprocess.run([REDLINE, "doctor", str(run)], capture_output=True, text=True).stdout
    assert "Not to be seen here: " in text and "PSI" in text


def test_a_record_cut_anywhere_is_still_judged(folder):
    run = train(folder, "cut")
    whole = {name: (run / name).read_bytes() for name in ("events.jsonl", "steps.bin")}
    for left in (0.9, 0.5, 0.2):
        for name, data in whole.items():
            (run / name).write_bytes(data[:int(left * len(data)) + 7])
        found = doctor(run)
        assert found["steps"] > 0 and found["diagnosis"]["sentence"]
    (run / "events.jsonl").write_bytes(whole["events.jsonl"][:40])  # no windows at all
    found = doctor(run)
    assert found["surroundings"] is None and found["diagnosis"]["sentence"]


def test_a_clock_that_jumps_changes_nothing(folder):
    found = doctor(train(folder, "jump", environment={"LD_PRELOAD": shim(folder), "SHIM_CLOCK": "-7200", "SHIM_CLOCK_FROM": "40"}))
    assert 1 < found["surroundings"]["seconds"] < 30 and found["step_seconds"] > 0
    assert gain(found, "stop-and-go") < 0.05


def test_no_sentence_holds_an_impossible_figure(folder, plain):
    for found in (plain, doctor(folder / "stops")):
        words = json.dumps(found["diagnosis"])
        assert not re.search(r"[-+]\d{5,} %|\bnan\b|\binf\b|\b0 GFLOP/s", words)
        assert all(0 <= score["gain"] <= 99 for score in found["diagnosis"]["scores"])
