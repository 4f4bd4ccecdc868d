"""redline doctor on a real, tiny job: every number it prints holds together, every switch it names exists, the test of the stopwatch scores itself."""
import json
import os
import pathlib
import subprocess
import time

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
REDLINE = os.environ.get("REDLINE", str(ROOT / "build/redline"))
JOB = [ROOT / "recipes/sequence_vae.yaml", "--batch_size", "4", "--num_workers", "1", "--precision", "32", "trainer.intra_op_threads=1",
       "model.d_model=16", "model.n_heads=2", "model.d_ff=32", "model.n_encoder_layers=1", "model.n_decoder_layers=1", "model.max_sequence_length=32", "model.train_ds.synth.num=400", "model.validation_ds.synth.num=400"]


def doctor(*words, cwd, timeout=120):
    return subprocess.run([REDLINE, "doctor", *map(str, words)], capture_output=True, text=True, cwd=cwd, timeout=timeout,
                          stdin=subprocess.DEVNULL)


@pytest.fixture(scope="module")
def answer(tmp_path_factory):
    folder = tmp_path_factory.mktemp("doctor")
    done = doctor("--json", *JOB, "--steps", "40", "--blocks", "3", "--operators", "--html", folder / "page.html", cwd=folder)
    assert done.returncode == 0, done.stderr
    assert (folder / "page.html").stat().st_size > 10_000
    found = json.loads(done.stdout)["runs"][0]
    found["rates_known"] = "could not be measured" not in done.stderr  # a busy machine has no rates, and the doctor says so
    return found


def test_phases_add_up(answer):
    assert sum(phase["seconds_per_step"] for phase in answer["phases"].values()) == pytest.approx(answer["step_seconds"], rel=1e-6)
    assert set(answer["loader_worker_seconds"]) == {"read", "decode", "transform", "collate"}
    assert 0 < answer["cores_used"] < 64 and 0 <= answer["measuring_seconds"] < 0.05 * answer["step_seconds"]


def test_rare_cadences_are_priced(answer):
    # 40 steps hold neither a validation nor a look of the monitor of their own accord; the run does.
    for phase in ("validate", "monitor"):
        assert answer["phases"][phase]["seconds_per_step"] > 0
    assert {c["experiment"] for c in answer["diagnosis"]["ceilings"]} >= {"free_loader", "loader_only", "no_validation", "no_monitor", "no_logging"}


def test_every_ceiling_has_an_interval_around_it(answer):
    for ceiling in answer["diagnosis"]["ceilings"]:
        speed = ceiling["speed"]
        assert speed["low"] <= speed["ratio"] <= speed["high"] and speed["blocks"] >= 1


def test_every_switch_exists(answer, tmp_path):
    assert answer["diagnosis"]["suggestions"]
    for suggestion in answer["diagnosis"]["suggestions"]:
        words = [f"{option}={value}" for option, value in suggestion["values"].items()]
        assert words and suggestion["reason"]
        done = subprocess.run([REDLINE, "train", *map(str, JOB), *words, "--print-config"], capture_output=True, text=True,
                              cwd=tmp_path, timeout=60, stdin=subprocess.DEVNULL)
        assert done.returncode == 0, (suggestion, done.stderr)


def test_operators_reach_a_share_of_the_peak(answer):
    operators = answer["operators"]
    assert sum(o["share"] for o in operators) == pytest.approx(1, abs=1e-6)
    known = [o["share_of_peak"] for o in operators if o["share_of_peak"] is not None]
    assert bool(known) == answer["rates_known"] and all(0 < share <= 1 for share in known)


def test_a_job_that_fails_at_once(tmp_path):
    done = doctor(ROOT / "recipes/sequence_vae.yaml", "model.train_ds.synth=null", "model.train_ds.path=missing", cwd=tmp_path)
    assert done.returncode in (2, 3)
    lines = [line for line in done.stderr.splitlines() if line.startswith("error")]
    assert len(lines) == 1 and "missing" in lines[0] and done.stdout == ""


@pytest.mark.parametrize("words", [["--steps", "0"], ["--steps", "-3"], ["--blocks", "1000"], []])
def test_usage(tmp_path, words):
    done = doctor(*words, *([] if not words else JOB), cwd=tmp_path)
    assert done.returncode == 2 and done.stdout == ""


FULL_TMPDIR = """
set -e
mount -t tmpfs -o size=50m,nr_inodes=12 tmpfs "$1"
for i in $(seq 11); do echo mine > "$1/$i"; done
export TMPDIR="$1"; shift
status=0; "$@" || status=$?
ls "$TMPDIR" | wc -l
exit $status
"""


@pytest.mark.parametrize("command", ["doctor", "race", "tune"])
def test_a_full_temporary_folder_is_an_error_and_keeps_what_is_in_it(command, tmp_path):
    full = tmp_path / "full"
    full.mkdir()
    words = {"doctor": [*JOB, "--steps", "2", "--blocks", "0"], "race": [*JOB, "--with", "trainer.log_every_n_steps=7", "--blocks", "1"], "tune": [*JOB, "--budget", "5s"]}[command]
    if subprocess.run(["unshare", "-m", "true"], capture_output=True).returncode == 0:
        prefix = ["unshare", "-m", "bash", "-c", FULL_TMPDIR, "bash", str(full)]
        expected = "11"
    else:  # not allowed to mount: a folder that may not be written to
        (full / "1").write_text("mine")
        full.chmod(0o555)
        prefix = ["env", f"TMPDIR={full}", "bash", "-c", '"$@"; status=$?; ls "$TMPDIR" | wc -l; exit $status', "bash"]
        expected = "1"
    done = subprocess.run([*prefix, REDLINE, command, *map(str, words)], capture_output=True, text=True, cwd=tmp_path, timeout=120, stdin=subprocess.DEVNULL)
    full.chmod(0o755)
    assert done.stdout.split()[-1] == expected, done.stderr
    assert done.returncode == 7 and str(full) in done.stderr and "TMPDIR" in done.stderr, done.stderr


@pytest.mark.parametrize("command", [["doctor", "--steps", "100000"], ["tune", "--budget", "100s"]])
def test_scratch_of_a_killed_process_goes_with_the_next(tmp_path, command):
    scratch = tmp_path / "tmp"
    scratch.mkdir()
    (scratch / "redline-trial-mine").mkdir()  # no mark: somebody's own, whatever its name
    how = {"cwd": tmp_path, "env": dict(os.environ, TMPDIR=str(scratch)), "stdin": subprocess.DEVNULL, "stderr": subprocess.DEVNULL, "stdout": subprocess.DEVNULL}
    killed = subprocess.Popen([REDLINE, command[0], *map(str, JOB), *command[1:]], **how)
    while not list(scratch.glob("redline-trial-*/.redline-own")):
        assert killed.poll() is None
        time.sleep(0.01)
    killed.kill()
    killed.wait()
    assert len(os.listdir(scratch)) >= 2
    assert subprocess.run([REDLINE, "doctor", *map(str, JOB), "--steps", "2", "--blocks", "0"], timeout=120, **how).returncode == 0
    assert os.listdir(scratch) == ["redline-trial-mine"]
