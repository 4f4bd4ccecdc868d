"""Run directories as a user meets them: the same command continues, runs stay apart, readers and refusals change nothing."""
import json
import os
import shutil
import signal
import subprocess
import time

import pytest
from test_chaos import JOB, SPEECH

REDLINE = os.environ.get("REDLINE", "build/redline")
ENDLESS = ["trainer.max_epochs=-1", "trainer.max_steps=1000000", "exp_manager.checkpoint_callback_params.every_n_train_steps=5"]
SHORT = ["trainer.max_steps=12", "exp_manager.checkpoint_callback_params.every_n_train_steps=4", "exp_manager.checkpoint_callback_params.async=false"]


@pytest.fixture
def home(tmp_path):
    (tmp_path / "job.yaml").write_text(JOB)
    yield tmp_path
    for process in Started.processes:  # a test that failed leaves none behind
        process.kill()
        process.wait()
    Started.processes.clear()


def redline(home, *words, code=0):
    done = subprocess.run([REDLINE, *map(str, words)], capture_output=True, text=True, cwd=home, timeout=120)
    assert done.returncode == code, (words, done.returncode, done.stdout, done.stderr)
    return done


def train(home, *words, code=0):
    return redline(home, "train", "job.yaml", *words, code=code)


class Started:
    """A training in the background, its words in a file."""
    processes = []

    def __init__(self, home, *words):
        self.log = home / f"log-{time.monotonic_ns()}"
        self.process = subprocess.Popen([REDLINE, "train", "job.yaml", *words], cwd=home, stdout=subprocess.DEVNULL, stderr=self.log.open("w"))
        self.processes.append(self.process)

    def wait_for(self, what, seconds=90):
        end = time.monotonic() + seconds
        while not what():
            assert time.monotonic() < end, self.log.read_text()
            assert self.process.poll() is None, self.log.read_text()
            time.sleep(0.02)

    def end(self, number=signal.SIGTERM):
        if number is not None:
            self.process.send_signal(number)
        return self.process.wait(90), self.log.read_text()


def steps_in(run):
    return sorted(int(p.name[5:]) for p in (run / "checkpoints").glob("step-*"))


def runs_of(home):
    return sorted(p for p in (home / "runs" / "tiny").iterdir()) if (home / "runs").exists() else []


def listing(folder):
    """Names, sizes, times and bytes of everything in it."""
    found = {}
    for path in sorted(folder.rglob("*")):
        facts = path.stat()
        found[str(path)] = (facts.st_mtime_ns, facts.st_size, path.read_bytes() if path.is_file() else None)
    return found


def damage(generation):
    data = bytearray((generation / "model.safetensors").read_bytes())
    data[len(data) // 2] ^= 8
    (generation / "model.safetensors").write_bytes(data)


def test_the_same_command_continues(home):
    first = Started(home, *ENDLESS)
    first.wait_for(lambda: runs_of(home) and steps_in(runs_of(home)[0])[-1:] >= [25])
    code, said = first.end()
    assert code == 75 and "run the same command again" in said
    run, = runs_of(home)
    stopped = steps_in(run)[-1]
    assert stopped >= 25

    second = Started(home, *ENDLESS)
    second.wait_for(lambda: steps_in(run)[-1] > stopped or len(runs_of(home)) > 1)
    assert f"Continuing runs/tiny/{run.name} (stopped at step {stopped}); --new-run starts another." in second.log.read_text()
    # While it lives, the same command is another run; killed before its first checkpoint, that one is continued from step 0.
    third = Started(home, *ENDLESS, "exp_manager.checkpoint_callback_params.every_n_train_steps=1000000")
    third.wait_for(lambda: len(runs_of(home)) == 2 and (runs_of(home)[1] / "run.json").exists())
    other = runs_of(home)[1]
    assert f"runs/tiny/{run.name} is a run of this job that process {second.process.pid}" in third.log.read_text()
    assert third.end(signal.SIGKILL)[0] == -signal.SIGKILL and not list(other.glob("checkpoints/step-*"))
    assert second.end()[0] == 75

    done = train(home, *ENDLESS, "trainer.max_steps=20")  # a limit is not another job; steps beyond it are another run
    assert f"Continuing runs/tiny/{other.name} (stopped before its first checkpoint)" in done.stderr
    assert json.loads((other / "run.json").read_text())["ended"] == "max_steps" and steps_in(other)[-1] == 20
    done = train(home, *ENDLESS, "trainer.max_steps=20")  # that one has ended, the first is past 20
    assert "Continuing" not in done.stderr and len(runs_of(home)) == 3
    assert "Continuing" not in train(home, *ENDLESS, "trainer.max_steps=5", "--new-run").stderr and len(runs_of(home)) == 4
    assert "Continuing" not in train(home, *ENDLESS, "trainer.max_steps=5", "seed=3").stderr and len(runs_of(home)) == 5
    train(home, *ENDLESS, "load_from=nothing.safetensors", code=4)  # refused: no empty directory is left
    assert len(runs_of(home)) == 5


def test_starts_at_once_take_different_directories(home):
    first = Started(home, *ENDLESS)
    first.wait_for(lambda: runs_of(home) and steps_in(runs_of(home)[0]))
    assert first.end(signal.SIGKILL)[0] == -signal.SIGKILL
    run, = runs_of(home)
    several = [Started(home, *ENDLESS) for _ in range(3)]
    for one in several:
        one.wait_for(lambda one=one: "Run directory" in one.log.read_text())
    places = {line.split("Run directory ")[1].rstrip(".") for one in several for line in one.log.read_text().splitlines() if "Run directory " in line}
    said = [one.end() for one in several]
    assert len(places) == 3 and len(runs_of(home)) == 3, said
    assert [code for code, _ in said] == [75] * 3
    assert sum(f"Continuing runs/tiny/{run.name}" in text for _, text in said) == 1


@pytest.mark.parametrize("how", ["removed", "moved", "replaced"])
def test_a_run_whose_directory_is_taken_away_ends_and_keeps_its_state(home, how):
    a = Started(home, *ENDLESS, "--run-dir", "z")
    run = home / "z"
    a.wait_for(lambda: steps_in(run))
    if how == "moved":
        run.rename(home / "elsewhere")
    else:
        while run.exists():  # a save may be writing into it
            shutil.rmtree(run, ignore_errors=True)
    if how == "replaced":
        train(home, *SHORT, "seed=99", "--run-dir", "z")
        b = listing(run)
    code, said = a.end(None)
    rescue = home / f"z.rescue-{a.process.pid}"
    assert code == 7 and said.count("error:") == 1 and "removed, moved or replaced" in said and rescue.name in said, said
    if how == "replaced":
        assert listing(run) == b and steps_in(run) == [8, 12], "the other run is as it was"
        assert "Nothing left to do" in train(home, *SHORT, "seed=99", "--run-dir", "z").stderr
        redline(home, "verify", "z")
    else:
        assert not run.exists()
    step, = steps_in(rescue)
    redline(home, "verify", f"{rescue.name}/checkpoints")
    assert json.loads(redline(home, "--json", "eval", rescue.name).stdout)["step"] == step
    limits = [*ENDLESS, f"trainer.max_steps={step + 5}"]
    assert f"at step {step}." in train(home, *limits, "--run-dir", "new", "--resume", rescue.name).stderr
    assert f"at step {step}." in train(home, *limits, "--run-dir", rescue.name).stderr


def test_jobs_that_start_together_share_generated_data(home):
    """Three jobs on an empty cache: one generates, the others wait for it; before, they deleted each other's files."""
    (home / "speech.yaml").write_text(SPEECH)
    for attempt in range(3):
        place = home / str(attempt)
        place.mkdir()
        words = [REDLINE, "-q", "train", str(home / "speech.yaml"), "trainer.max_steps=1", "trainer.limit_val_batches=1"]
        jobs = [subprocess.Popen([*words, "--run-dir", f"run{i}"], cwd=place, stderr=subprocess.PIPE, text=True) for i in range(3)]
        Started.processes += jobs
        said = [job.communicate(timeout=120)[1] for job in jobs]
        assert [job.returncode for job in jobs] == [0, 0, 0], said
        kept = [path.name for path in place.glob(".cache/**/speech-*")]
        assert sum("." not in name for name in kept) == 1 and not any("draft" in name or "broken" in name for name in kept), kept


def test_readers_change_nothing(home):
    train(home, *SHORT, "--run-dir", "run")
    run = home / "run"
    newest = run / "checkpoints" / "step-00000012"
    damage(newest)
    before = listing(run)
    done = redline(home, "--json", "eval", "run")
    assert json.loads(done.stdout)["step"] == 8
    assert "model.safetensors" in done.stderr and "The generation before it is used" in done.stderr
    redline(home, "data", "synth", "sequences", "--out", "new", "num=20", "vocab_size=50", "median_length=15", "max_length=40")
    redline(home, "predict", "run", "new/train", "--out", "p.safetensors")
    redline(home, "verify", "run", code=4)
    redline(home, "report", "run", "--html", "page.html")
    redline(home, "convert", "safetensors", "run", "weights.safetensors")
    train(home, *SHORT, "--run-dir", "from_weights", "load_from=run")
    assert "at step 8." in train(home, *SHORT, "--run-dir", "from_state", "--resume", "run").stderr
    redline(home, "eval", "run", "--checkpoint", "best", code=4)  # it was never validated
    assert listing(run) == before
    # Without a usable one they end with a sentence, and still make nothing, not even a folder.
    damage(run / "checkpoints" / "step-00000008")
    before = listing(run)
    for words in (["eval", "run"], ["predict", "run", "new/train", "--out", "q.safetensors"]):
        assert "step-00000012 is damaged" in redline(home, *words, code=4).stderr
    shutil.rmtree(run / "checkpoints")
    redline(home, "eval", "run", code=4)
    assert not (run / "checkpoints").exists() and not (home / "q.safetensors").exists()


def test_damage_never_starts_a_run_again(home):
    words = [*SHORT, "--run-dir", "run"]
    train(home, *words)
    for generation in (home / "run/checkpoints").iterdir():
        damage(generation)
    before = listing(home / "run")
    for _ in range(2):
        said = train(home, *words, code=4).stderr
        assert "step-00000012 is damaged" in said and "step-00000008 is damaged" in said and "--start-afresh" in said
        assert listing(home / "run") == before
    assert "checkpoints.abandoned" in train(home, *words, "--start-afresh").stderr
    assert sorted(p.name for p in (home / "run/checkpoints.abandoned").iterdir()) == ["step-00000008", "step-00000012"]
    assert "Nothing left to do" in train(home, *words).stderr
    shutil.rmtree(home / "run/checkpoints")
    assert "is gone" in train(home, *words, code=4).stderr


def test_a_run_that_cannot_be_recognised_is_named(home):
    train(home, *SHORT)
    run, = runs_of(home)
    for text in ("", '{"format": "redline.run", "version": 99}'):
        (run / "run.json").write_text(text)
        said = train(home, *SHORT, "trainer.max_steps=4").stderr
        assert f"Whether runs/tiny/{run.name} is an unfinished run of this job cannot be seen" in said, said
    assert "at step 12" in train(home, *SHORT, "trainer.max_steps=14", "--run-dir", run).stderr  # by its path it is continued


def test_a_refused_resume_changes_nothing(home):
    train(home, *SHORT, "--run-dir", "run")
    before = listing(home / "run")
    assert "shape" in train(home, *SHORT, "--run-dir", "run", "model.d_model=64", code=4).stderr
    assert listing(home / "run") == before
    redline(home, "eval", "run")


def test_more_threads_than_cores_are_said_once(home):
    (home / "job.yaml").write_text(JOB.replace("intra_op_threads: 1, ", ""))
    if len(os.sched_getaffinity(0)) < 2:
        pytest.skip("needs two cores")
    train(home, *SHORT, "--run-dir", "run")
    one = sorted(os.sched_getaffinity(0))[:1]
    done = subprocess.run([REDLINE, "train", "job.yaml", *SHORT, "trainer.max_steps=14", "--run-dir", "run"], capture_output=True, text=True, cwd=home,
                          preexec_fn=lambda: os.sched_setaffinity(0, one), timeout=120)
    assert done.returncode == 0 and done.stderr.count("threads will wait for each other") == 1, done.stderr
