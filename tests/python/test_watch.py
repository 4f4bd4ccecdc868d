"""redline watch: a live view from the record alone, on a terminal and into a pipe."""
import fcntl
import os
import pathlib
import pty
import re
import resource
import signal
import struct
import subprocess
import termios
import time

import pytest

import run_records

ROOT = pathlib.Path(__file__).resolve().parents[2]
REDLINE = os.environ.get("REDLINE", str(ROOT / "build/redline"))
JOB = [str(ROOT / "recipes/sequence_vae.yaml"), "--batch_size", "4", "--num_workers", "1", "--precision", "32", "trainer.intra_op_threads=1",
       "model.d_model=16", "model.n_heads=2", "model.d_ff=32", "model.n_encoder_layers=1", "model.n_decoder_layers=1", "model.max_sequence_length=32",
       "model.train_ds.synth.num=400", "model.validation_ds.synth.num=400", "trainer.limit_val_batches=0", "trainer.max_epochs=-1"]


def train(folder, run, *words):
    return subprocess.Popen([REDLINE, "-q", "train", *JOB, *words, "--run-dir", str(run)], cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)


def wait_for_steps(run, job):
    for _ in range(600):
        if (run / "steps.bin").exists() and (run / "steps.bin").stat().st_size > 64 + 20 * 232:
            return
        assert job.poll() is None, job.stderr.read()
        time.sleep(0.05)
    raise AssertionError("no steps")


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    folder = tmp_path_factory.mktemp("watch")
    job = train(folder, folder / "done", "trainer.max_steps=60")
    assert job.wait(120) == 0, job.stderr.read()
    return folder / "done"


def watch(*words, cwd, **how):
    return subprocess.run([REDLINE, "watch", *map(str, words)], capture_output=True, text=True, cwd=cwd, timeout=60, stdin=subprocess.DEVNULL, **how)


def test_a_pipe_gets_lines_without_escapes_and_ends_with_the_run(tmp_path):
    run = tmp_path / "run"
    job = train(tmp_path, run, "trainer.max_steps=1000000", "trainer.max_time=4s")
    wait_for_steps(run, job)
    done = watch(run, "--every", "0.5", cwd=tmp_path)
    assert job.wait(60) == 0
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert len(lines) >= 3 and "\x1b" not in done.stdout
    assert all(line.startswith(f"{run}: ") for line in lines)
    assert ": running, " in lines[0] and "samples/s" in lines[0] and ": stopped (max_time), " in lines[-1]
    steps = [int(re.search(r"step (\d+)", line)[1]) for line in lines]
    assert steps == sorted(steps) and steps[-1] > steps[0]


def read_terminal(columns, rows, words, cwd, seconds, end=None, command="watch"):
    """What a terminal of that size is sent; the process, still running unless it ended."""
    process, fd = pty.fork()
    if process == 0:
        fcntl.ioctl(1, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
        os.chdir(cwd)
        os.environ["LANG"] = "C.UTF-8"
        os.execv(REDLINE, [REDLINE, command, *map(str, words)])
    text, until = b"", time.monotonic() + seconds
    os.set_blocking(fd, False)
    while time.monotonic() < until and not (end and end in text):
        try:
            text += os.read(fd, 65536)
        except BlockingIOError:
            time.sleep(0.05)
        except OSError:
            break
    alive = os.waitpid(process, os.WNOHANG)[0] == 0
    status = None
    if alive:
        os.kill(process, signal.SIGINT)
        _, status = os.waitpid(process, 0)
    os.close(fd)
    return text.decode("utf-8", "replace"), alive, status


def screen_of(text):
    """The last picture: what came after the last jump up, without escapes."""
    last = re.split(r"\x1b\[\d+A\r", text)[-1]
    return [re.sub(r"\x1b\[[0-9;]*[A-Za-z]", "", line).rstrip("\r") for line in last.split("\n")]


@pytest.mark.parametrize("columns", [60, 30])
def test_a_narrow_terminal_is_drawn_in_place_and_stays_after_the_end(tmp_path, finished, columns):
    text, alive, status = read_terminal(columns, 24, [finished, "--every", "0.3"], tmp_path, 8)
    assert alive, "it stays: the run may be resumed"
    assert os.WIFEXITED(status) and os.WEXITSTATUS(status) == 0
    assert len(re.findall(r"\x1b\[\d+A\r", text)) >= 3  # drawn over itself
    lines = screen_of(text)
    assert all(len(line) < columns + 1 for line in lines), lines
    assert "finished" in lines[0] and any("samples/s" in line for line in lines) and any("step 60" in line for line in lines)


@pytest.mark.parametrize("columns", [100, 50, 30])
def test_the_list_of_runs_fits_a_terminal(tmp_path, columns):
    names = ["a", "a-name-that-is-much-longer-than-the-window-of-the-terminal-and-ends-in-one"]
    for name in names:
        run_records.make_run(tmp_path / "runs" / name, {"forward": 20.0, "backward": 40.0}, steps=30)
    text, _, _ = read_terminal(columns, 24, [], tmp_path, 20, command="runs")
    lines = [line for line in text.replace("\r", "").split("\n") if line]
    assert len(lines) == 3 and all(len(line) <= columns for line in lines), lines
    assert lines[0].split()[:3] == ["run", "state", "steps"] and any("ends-in-one" in line for line in lines)


def test_a_low_window_is_not_scrolled(tmp_path, finished):
    text, alive, _ = read_terminal(80, 5, [finished, finished, "--every", "0.3"], tmp_path, 5)
    assert alive and len([line for line in screen_of(text) if line]) <= 4


def test_a_killed_run_is_stopped_and_a_torn_record_is_no_error(tmp_path):
    run = tmp_path / "run"
    job = train(tmp_path, run, "trainer.max_steps=1000000", "trainer.max_time=60s")
    wait_for_steps(run, job)
    job.kill()
    job.wait()
    for name in ("steps.bin", "events.jsonl"):
        data = (run / name).read_bytes()
        (run / name).write_bytes(data[:-5])
    done = watch(run, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert ": stopped, step" in done.stdout and "samples/s" in done.stdout


def test_a_run_that_is_taken_away_is_gone(tmp_path, finished):
    moved = tmp_path / "moved"
    os.symlink(finished, moved)
    done = watch(moved, "--once", cwd=tmp_path)
    assert done.returncode == 0 and "finished" in done.stdout
    done = watch(tmp_path / "missing", cwd=tmp_path)
    assert done.returncode == 3 and "missing" in done.stderr


def test_it_costs_next_to_nothing(tmp_path, finished):
    """The bar is 1 % of a core on a long look; here that twenty looks cost less than starting the program."""
    def cpu(*words):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        watcher = subprocess.Popen([REDLINE, "watch", str(finished), *words], stdout=subprocess.DEVNULL)
        watcher.wait(60)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    start = min(cpu("--once") for _ in range(2))
    process, fd = pty.fork()
    if process == 0:
        os.execv(REDLINE, [REDLINE, "watch", str(finished), "--every", "0.2"])
    time.sleep(6)
    os.kill(process, signal.SIGINT)
    with open(fd, "rb", closefd=False) as out:
        try:
            while out.read1(65536):
                pass
        except OSError:
            pass
    _, _, usage = os.wait4(process, 0)
    os.close(fd)
    looks = usage.ru_utime + usage.ru_stime - start
    assert looks < 0.30, f"about 28 looks took {looks:.2f} s of CPU"
