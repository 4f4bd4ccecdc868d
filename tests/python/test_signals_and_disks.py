"""Signals, closed pipes, closed descriptors and full disks: training goes on or stops saved, and what could not be said is never passed over."""
import json
import os
import resource
import shutil
import signal
import subprocess
import time

import pytest
from test_chaos import JOB

REDLINE = os.path.abspath(os.environ.get("REDLINE", "build/redline"))


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    folder = tmp_path_factory.mktemp("signals")
    (folder / "job.yaml").write_text(JOB)
    return folder


def words(name, *more):
    return [REDLINE, "train", "job.yaml", "--run-dir", name, *map(str, more)]


def run(home, *arguments, code=0, **settings):
    done = subprocess.run(arguments, capture_output=True, text=True, cwd=home, timeout=120, **settings)
    assert done.returncode == code, (arguments, done.returncode, done.stdout, done.stderr)
    return done


def steps_done(home, name):
    return len(list((home / name / "checkpoints").glob("step-*")))


def start_and_wait(home, name, *more, **settings):
    process = subprocess.Popen(words(name, "trainer.max_epochs=100000", *more), cwd=home, stderr=subprocess.PIPE, text=True, **settings)
    deadline = time.time() + 60
    while not steps_done(home, name) and process.poll() is None and time.time() < deadline:
        time.sleep(0.02)
    return process


@pytest.mark.parametrize("number", [signal.SIGHUP, signal.SIGUSR2, signal.SIGXCPU])
def test_signals_that_end_other_programs_save_first(home, number):
    process = start_and_wait(home, f"by{number}")
    process.send_signal(number)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 75, err
    assert f"Stopped by {signal.Signals(number).name} at step" in err and "saved" in err


def test_under_nohup_a_hang_up_changes_nothing(home):
    process = start_and_wait(home, "nohup", preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_IGN))
    process.send_signal(signal.SIGHUP)
    time.sleep(0.3)
    assert process.poll() is None
    process.terminate()
    _, err = process.communicate(timeout=60)
    assert process.returncode == 75 and "SIGTERM" in err


def test_a_stop_before_the_config_is_read_is_a_stop(home):
    """The job's file is a pipe that stays empty until the signal has come: handlers must stand before anything is read."""
    os.mkfifo(home / "slow.yaml")
    process = subprocess.Popen([REDLINE, "train", "slow.yaml", "--run-dir", "early"], cwd=home, stderr=subprocess.PIPE, text=True)
    deadline = time.time() + 10  # libraries load before the program itself runs
    while time.time() < deadline and not handles(process.pid, signal.SIGTERM):
        time.sleep(0.01)
    process.terminate()
    while process.poll() is None:  # it may read the file more than once
        try:
            with open(os.open(home / "slow.yaml", os.O_WRONLY | os.O_NONBLOCK), "w") as pipe:
                pipe.write(JOB)
        except OSError:
            pass
        time.sleep(0.02)
    err = process.stderr.read()
    assert process.returncode == 75, err
    assert "Stopped by SIGTERM before the first step" in err and "Run the same command again" in err
    assert not (home / "early").exists()


def test_a_stop_while_a_job_starts_is_a_stop(home):
    """75 and a sentence whenever it comes, and the directory is untouched or goes on."""
    for delay in (0, 0.05, 0.1, 0.2, 0.4):
        process = subprocess.Popen(words("started", "trainer.max_epochs=100000"), cwd=home, stderr=subprocess.PIPE, text=True)
        while process.poll() is None and not handles(process.pid, signal.SIGTERM):
            time.sleep(0.001)
        time.sleep(delay)
        process.terminate()
        _, err = process.communicate(timeout=60)
        assert process.returncode == 75 and "Stopped by SIGTERM" in err, err
    run(home, *words("started", "trainer.max_steps=3000", "trainer.max_time=1s"))


def handles(pid, number):
    try:
        with open(f"/proc/{pid}/status") as status:
            caught = [line.split()[1] for line in status if line.startswith("SigCgt")]
    except FileNotFoundError:
        return True
    return not caught or bool(int(caught[0], 16) >> (number - 1) & 1)


def test_a_reader_that_goes_away_does_not_end_training(home):
    line = " ".join(words("piped", "trainer.max_steps=30", "trainer.enable_progress_bar=true"))
    done = run(home, "bash", "-c", f"({line}; echo $? >piped.code) 2>&1 | head -1")
    assert done.stdout.count("\n") == 1
    deadline = time.time() + 60
    while not (home / "piped.code").exists() and time.time() < deadline:
        time.sleep(0.05)
    assert (home / "piped.code").read_text() == "0\n"
    assert (home / "piped/checkpoints/step-00000030").exists()
    line = " ".join([REDLINE, "options"])
    assert run(home, "bash", "-c", f"({line}; echo $? >options.code) | head -1; sleep 0.2; cat options.code").stdout.splitlines()[-1] == "0"


def test_an_answer_that_cannot_be_written_is_a_failure(home):
    run(home, *words("small", "trainer.max_steps=3"))
    for command in (["report", "small"], ["--json", "report", "small"], ["machine"], ["options"], ["--help"], ["diff", "small", "small"], ["--json", "eval", "small"]):
        with open("/dev/full", "w") as full:
            done = subprocess.run([REDLINE, *command], stdout=full, stderr=subprocess.PIPE, text=True, cwd=home)
        assert done.returncode == 7, (command, done.returncode, done.stderr)
        assert "could not be written to the standard output: No space left on device" in done.stderr
    with open("/dev/full", "w") as full:  # a worse answer keeps its code
        assert subprocess.run([REDLINE, "eval", "nothing"], stdout=full, stderr=subprocess.DEVNULL, cwd=home).returncode == 3


def test_with_closed_descriptors_no_line_lands_in_a_file_of_the_run(home):
    run(home, "bash", "-c", " ".join(words("closed", "trainer.max_steps=12")) + " <&- >&- 2>&-")
    lock = (home / "closed/lock").read_text()
    assert lock.startswith("process ") and lock.count("\n") == 1
    for name in ("events.jsonl", "metrics.jsonl"):
        for line in (home / "closed" / name).read_text().splitlines():
            json.loads(line)
    run(home, REDLINE, "verify", "closed")


def test_json_answers_take_paths_that_are_no_utf8(home):
    name = os.fsdecode(b"run-\xff\xfe")
    run(home, *words("named", "trainer.max_steps=3"))
    (home / "named").rename(home / name)
    for command in (["eval", name], ["verify", name], ["report", name], ["diff", name, name]):
        json.loads(run(home, REDLINE, "--json", *command).stdout)


@pytest.mark.parametrize("value", ["inf", "1e30", "-inf"])
def test_an_interval_that_is_no_number_is_refused(home, value):
    assert "val_check_interval" in run(home, *words("never", f"trainer.val_check_interval={value}"), code=2).stderr


def test_the_largest_interval_is_printed_as_it_is(home):
    said = run(home, *words("rare", "trainer.val_check_interval=9223372036854775807", "trainer.max_steps=3")).stderr
    assert "validation every 4611686018427387904 steps" in said


def in_small_disk(home, script, size):
    """In a mount namespace of its own with a tmpfs at `disk`; skipped where that is not allowed."""
    if shutil.which("unshare") is None or subprocess.run(["unshare", "-m", "true"], capture_output=True).returncode != 0:
        pytest.skip("no mount namespaces here")
    (home / "disk").mkdir(exist_ok=True)
    return subprocess.run(["unshare", "-m", "--propagation", "private", "bash", "-c", f"mount -t tmpfs -o size={size} tmpfs disk && cp job.yaml disk && {script}"],
                          cwd=home, capture_output=True, text=True, timeout=120)


LOGS = "trainer.max_epochs=-1 trainer.log_every_n_steps=1 model.monitor.update_frequency=1 model.monitor.plot_frequency=40 exp_manager.checkpoint_callback_params.every_n_train_steps=1000"


def test_a_full_disk_under_the_logs_costs_no_step_and_no_line(home):
    """The disk fills up while training runs and is freed again: same record as undisturbed, exit 0."""
    line = " ".join(words("disk/run", "trainer.max_steps=400", LOGS))
    script = f"""
        {line} 2>err & pid=$!
        until [ -s disk/run/metrics.csv ] && [ $(wc -l <disk/run/metrics.csv) -gt 20 ]; do sleep 0.01; kill -0 $pid || exit 90; done
        kill -STOP $pid; head -c 100m /dev/zero >disk/fill 2>/dev/null; kill -CONT $pid
        until grep -q 'Training goes on: up to' err; do sleep 0.01; kill -0 $pid || break; done
        rm disk/fill
        wait $pid; code=$?
        cp -r disk/run full_run; exit $code"""
    done = in_small_disk(home, script, "90m")
    err = (home / "err").read_text()
    assert done.returncode == 0, (done.returncode, done.stderr, err)
    assert err.count("Training goes on: up to 64 MiB") == 1 and err.count("The run's log can be written again") == 1, err
    run(home, *words("calm", "trainer.max_steps=400", *LOGS.split()))
    run(home, REDLINE, "diff", "calm", "full_run")
    for name in ("metrics.jsonl", "events.jsonl"):
        for text in (home / "full_run" / name).read_text().splitlines():
            json.loads(text)
    full, calm = ([json.loads(text) for text in (home / name / "metrics.jsonl").read_text().splitlines()[1:]] for name in ("full_run", "calm"))
    assert [p for p in full if p["name"] == "loss"] == [p for p in calm if p["name"] == "loss"] and len([p for p in full if p["name"] == "loss"]) == 400
    rows = (home / "full_run/metrics.csv").read_text().splitlines()
    assert len({row.count(",") for row in rows}) == 1 and len(rows) == len((home / "calm/metrics.csv").read_text().splitlines())
    report = json.loads(run(home, REDLINE, "--json", "report", "full_run").stdout)
    assert "torn" not in json.dumps(report)


def test_a_disk_that_stays_full_ends_with_code_7_and_a_whole_record_so_far(home):
    line = " ".join(words("disk/run", "trainer.max_steps=120", LOGS, "exp_manager.create_checkpoint_callback=false"))
    script = f"""
        {line} 2>err & pid=$!
        until [ -s disk/run/metrics.csv ] && [ $(wc -l <disk/run/metrics.csv) -gt 20 ]; do sleep 0.01; kill -0 $pid || exit 90; done
        kill -STOP $pid; head -c 100m /dev/zero >disk/fill 2>/dev/null; kill -CONT $pid
        wait $pid; code=$?
        cp -r disk/run stays_full; exit $code"""
    done = in_small_disk(home, script, "24m")
    err = (home / "err").read_text()
    assert done.returncode == 7, (done.returncode, done.stderr, err)
    assert "Stopped after 120 steps" in err and "could not be written to disk/run" in err and err.count("Training goes on") == 1
    for name in ("metrics.jsonl", "events.jsonl"):
        assert (home / "stays_full" / name).read_bytes().endswith(b"\n")


def test_a_limit_on_file_sizes_is_a_full_disk_not_a_signal(home):
    """ulimit -f: the kernel would end the process with SIGXFSZ."""
    done = subprocess.run(words("limited", "trainer.max_steps=60", *LOGS.split(), "exp_manager.create_checkpoint_callback=false"), cwd=home, capture_output=True, text=True,
                          preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (20000, 20000)))
    assert done.returncode == 7, (done.returncode, done.stderr)
    assert "Stopped after 60 steps" in done.stderr and "File too large" in done.stderr
    assert (home / "limited/metrics.jsonl").stat().st_size <= 20000 and (home / "limited/metrics.jsonl").read_bytes().endswith(b"\n")
