"""Disks that fail, folders that vanish, clocks that jump, processes that stop or die, on real `redline train` runs: what the user reads,
what is lost (nothing), and that the same command ends as if nothing had happened. A few of each in `make test`; every disk call of a run and a
SIGSTOP of a minute in `make test-slow`, which prints the table (REDLINE_FAULT_TABLE=file writes it as it grows, tests/faults/table groups it;
REDLINE_FAULT_EVERY=3 takes every third call, others for each error)."""
import errno
import json
import os
import pathlib
import shutil
import signal
import subprocess
import time

import pytest
from test_chaos import JOB as TINY

ROOT = pathlib.Path(__file__).resolve().parents[2]
REDLINE = os.environ.get("REDLINE", str(ROOT / "build/redline"))
SLOW = os.environ.get("REDLINE_SLOW") == "1"

# The job of the kills, shorter, and with saves whose disk calls come in the same order each time.
JOB = TINY[:TINY.index("trainer:")] + """trainer: {max_steps: 24, log_every_n_steps: 2, intra_op_threads: 1, enable_progress_bar: false}
exp_manager: {checkpoint_callback_params: {every_n_train_steps: 6, async: false}}
"""

EVERY = int(os.environ.get("REDLINE_FAULT_EVERY", "1"))
HEAD = ["| what was done | exit | last line the user read | starts until done | lost |", "|---|---|---|---|---|"]
table = []


def note(what, code, said, starts, lost):
    """A row of the table; on disk at once, so that a campaign that is stopped has what it did."""
    table.append(f"| {what} | {'killed' if code < 0 else code} | {said.replace('|', '/')[:220]} | {starts} | {lost} |")
    if os.environ.get("REDLINE_FAULT_TABLE"):
        pathlib.Path(os.environ["REDLINE_FAULT_TABLE"]).write_text("\n".join(HEAD + table) + "\n")


class Campaign:
    def __init__(self, folder):
        self.folder = folder
        (folder / "job.yaml").write_text(JOB)
        self.shim = folder / "shim.so"
        subprocess.run(["cc", "-O1", "-Wall", "-fPIC", "-shared", "-o", self.shim, ROOT / "tests/faults/shim.c", "-ldl"], check=True)
        done = self.train(folder / "reference", SHIM_LOG=folder / "calls")
        assert done.returncode == 0, done.stderr
        self.calls = [line.split(" ", 2)[1:] for line in (folder / "calls").read_text().splitlines()]
        self.number = 0

    def environment(self, run, **shim):
        env = dict(os.environ, SHIM_PATH=str(run), **{name: str(value) for name, value in shim.items()})
        if shim:
            env["LD_PRELOAD"] = str(self.shim)
        return env

    def command(self, run, *words):
        return [REDLINE, "train", str(self.folder / "job.yaml"), "--run-dir", str(run), *words]

    def train(self, run, *words, **shim):
        return subprocess.run(self.command(run, *words), capture_output=True, text=True, env=self.environment(run, **shim), cwd=self.folder, timeout=600,
                              stdin=subprocess.DEVNULL)

    def new_run(self):
        self.number += 1
        return self.folder / f"run{self.number}"

    def ends_as_if_undisturbed(self, what, run, first):
        """`first` is what the disturbed process said; then the same command, until it is done (twice at the most)."""
        said = [line for line in first.stderr.splitlines() if line.strip()]
        last = said[-1] if said else ""
        assert first.returncode in (0, 3, 4, 7, 75, -signal.SIGKILL), (what, first.returncode, first.stderr)
        assert "mistake in redline" not in first.stderr and "terminate called" not in first.stderr, (what, first.stderr)
        if first.returncode > 0:
            assert len(last) > 20, (what, "no sentence", first.stderr)
        starts = 0
        while starts < 2:
            starts += 1
            done = self.train(run)
            if done.returncode == 0:
                break
        assert done.returncode == 0, (what, "the same command did not end it", done.returncode, done.stderr)
        same = subprocess.run([REDLINE, "diff", self.folder / "reference", run], capture_output=True, text=True)
        assert same.returncode == 0, (what, same.stdout, same.stderr)
        note(what, first.returncode, last.replace(str(self.folder), "…"), starts, "nothing")
        shutil.rmtree(run)


@pytest.fixture(scope="module")
def campaign(tmp_path_factory):
    made = Campaign(tmp_path_factory.mktemp("faults"))
    yield made
    print("\n".join(HEAD + table))


def spread(count, few, first=0):
    """All of them in the long campaign (every EVERY-th, from the `first`), `few` spread evenly otherwise."""
    return list(range(first % EVERY, count, EVERY)) if SLOW or count <= few else [int((i + 0.5) * count / few) for i in range(few)]


def test_the_shim_counts_and_the_reference_is_whole(campaign):
    kinds = {kind for kind, _ in campaign.calls}
    assert {"open", "write", "fsync", "rename"} <= kinds and len(campaign.calls) > 80
    assert subprocess.run([REDLINE, "verify", campaign.folder / "reference"], capture_output=True).returncode == 0


def test_a_kill_at_any_disk_call(campaign):
    for at in spread(len(campaign.calls), 6):
        run = campaign.new_run()
        first = campaign.train(run, SHIM_FROM=at, SHIM_KILL=1)
        assert first.returncode == -signal.SIGKILL, at
        campaign.ends_as_if_undisturbed(f"kill -9 at disk call {at}: {campaign.calls[at][0]} {pathlib.Path(campaign.calls[at][1]).name}", run, first)


ONCE = [errno.EIO, errno.ENOSPC, errno.EROFS, errno.ESTALE, errno.EMFILE, errno.EACCES]


@pytest.mark.parametrize("code", ONCE)
def test_one_disk_call_fails(campaign, code):
    few = 2 if code in (errno.EIO, errno.ENOSPC) else 1
    for at in spread(len(campaign.calls), few, ONCE.index(code)):
        run = campaign.new_run()
        first = campaign.train(run, SHIM_FROM=at, SHIM_ERRNO=code)
        campaign.ends_as_if_undisturbed(f"{errno.errorcode[code]} once, at call {at}: {campaign.calls[at][0]} {pathlib.Path(campaign.calls[at][1]).name}", run, first)


@pytest.mark.parametrize("code", [errno.EIO, errno.ENOSPC, errno.EROFS])
def test_the_disk_fails_for_good_in_the_middle(campaign, code):
    for share in (0.3, 0.7) if not SLOW else (0.1, 0.3, 0.5, 0.7, 0.9):
        run = campaign.new_run()
        writing = sum(kind in ("write", "fsync", "rename") for kind, _ in campaign.calls)
        first = campaign.train(run, SHIM_FROM=int(share * writing), SHIM_COUNT=1_000_000, SHIM_ERRNO=code, SHIM_CALLS="write,fsync,rename")
        assert first.returncode == 7, (first.returncode, first.stderr)
        campaign.ends_as_if_undisturbed(f"{errno.errorcode[code]} on every write after {share:.0%} of the run", run, first)


@pytest.mark.parametrize("code", [errno.EIO, errno.ESTALE, errno.EACCES, errno.ENOMEM])
def test_reading_a_good_checkpoint_fails(campaign, code):
    """A healthy generation stays where it is: only a wrong size or checksum is damage."""
    run = campaign.new_run()
    renames = [i for i, (kind, path) in enumerate(campaign.calls) if kind == "rename" and pathlib.Path(path).name.startswith("step-")]
    assert campaign.train(run, SHIM_FROM=renames[1] + 10, SHIM_KILL=1).returncode == -signal.SIGKILL  # just after its second checkpoint
    before = sorted(os.listdir(run / "checkpoints"))
    first = campaign.train(run, SHIM_FROM=0, SHIM_COUNT=1_000_000, SHIM_ERRNO=code, SHIM_CALLS="read")
    assert first.returncode == 7, (first.returncode, first.stderr)
    assert sorted(os.listdir(run / "checkpoints")) == before
    campaign.ends_as_if_undisturbed(f"{errno.errorcode[code]} on every read at a resume", run, first)


def test_a_small_file_system_fills_up(campaign):
    if subprocess.run(["unshare", "-m", "true"], capture_output=True).returncode != 0:
        print("not allowed to mount here; the shim's ENOSPC covers the calls")
        return
    run = campaign.new_run()
    place = campaign.folder / "small"
    place.mkdir()
    script = 'mount -t tmpfs -o size=700k tmpfs "$1" && shift && { "$@"; code=$?; cp -a "$PLACE/run" "$KEPT"; exit $code; }'
    first = subprocess.run(["unshare", "-m", "bash", "-c", script, "bash", str(place), *campaign.command(place / "run")], capture_output=True, text=True, cwd=campaign.folder,
                           env=dict(os.environ, PLACE=str(place), KEPT=str(run)), timeout=120)
    assert first.returncode == 7, (first.returncode, first.stderr)
    assert "space" in first.stderr, first.stderr
    campaign.ends_as_if_undisturbed("a tmpfs of 700 KB fills up, then the run goes to a larger disk", run, first)


@pytest.mark.parametrize("how", ["moved", "removed"])
def test_the_run_directory_vanishes(campaign, how):
    run = campaign.new_run()
    child = subprocess.Popen(campaign.command(run, "trainer.max_steps=100000"), stderr=subprocess.PIPE, text=True, cwd=campaign.folder)
    wait_for(lambda: list((run / "checkpoints").glob("step-*")), child)
    run.rename(run.with_name("elsewhere"))
    if how == "removed":
        shutil.rmtree(run.with_name("elsewhere"))
    said = child.communicate(timeout=60)[1]
    assert child.returncode == 7 and "rescue" in said, (child.returncode, said)
    rescue = [p for p in campaign.folder.iterdir() if "rescue" in p.name]
    assert rescue and str(rescue[0]) in said, said
    assert subprocess.run([REDLINE, "verify", rescue[0] / "checkpoints"], capture_output=True).returncode == 0
    note(f"the run directory is {how} while training", 7, said.splitlines()[-1].replace(str(campaign.folder), "…"), 1, "nothing: the state is in the rescue place")
    for path in [*rescue, run.with_name("elsewhere")]:
        shutil.rmtree(path, ignore_errors=True)


def wait_for(condition, child, seconds=60):
    end = time.monotonic() + seconds
    while not condition():
        assert child.poll() is None and time.monotonic() < end, "the run did not come so far"
        time.sleep(0.01)


@pytest.mark.parametrize("shift", [-400 * 86400, 400 * 86400])
def test_the_clock_jumps(campaign, shift):
    run = campaign.new_run()
    first = campaign.train(run, SHIM_CLOCK=shift, SHIM_CLOCK_FROM=20)
    assert first.returncode == 0, first.stderr
    campaign.ends_as_if_undisturbed(f"the wall clock jumps by {shift // 86400} days", run, first)


def test_stopped_and_continued(campaign):
    run = campaign.new_run()
    child = subprocess.Popen(campaign.command(run), stderr=subprocess.PIPE, text=True, cwd=campaign.folder)
    wait_for(lambda: (run / "steps.bin").exists(), child)
    child.send_signal(signal.SIGSTOP)
    time.sleep(60 if SLOW else 2)
    child.send_signal(signal.SIGCONT)
    said = child.communicate(timeout=120)[1]
    campaign.ends_as_if_undisturbed(f"SIGSTOP for {60 if SLOW else 2} s", run, subprocess.CompletedProcess([], child.returncode, "", said))


def test_a_lost_step_would_be_seen(campaign):
    """The control: a run over other samples is not taken for the undisturbed one."""
    run = campaign.new_run()
    assert campaign.train(run, "seed=7").returncode == 0
    answer = subprocess.run([REDLINE, "--json", "diff", campaign.folder / "reference", run], capture_output=True, text=True)
    assert answer.returncode == 1 and json.loads(answer.stdout)["different_tensors"]
