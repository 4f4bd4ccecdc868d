"""Faults made from outside, by means that know nothing of redline's phases: other processes, limits of the kernel, signals, a library between the
program and its disk; and a few that a user makes by settings alone. A fault is entered before the job starts, and told of the job once it runs.

`right` holds the verdicts that name the cause, as (verdict, detail or None for any).
"""
import contextlib
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import threading
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
CORES = sorted(os.sched_getaffinity(0))


def built(source, target, *flags):
    if not target.exists() or target.stat().st_mtime < source.stat().st_mtime:
        subprocess.run(["gcc", "-O2", "-o", target, source, *flags], check=True)
    return target


class Fault:
    """As it is: nothing is done. `words` are added to the job's command, `prefix` stands before it, `environment` is the job's."""
    right = ()
    tasks = ("speech", "sequences", "pictures", "scenes")
    words = ()          # of the job with the fault
    removed_words = ()  # of the job without it, where the healthy job is not its twin

    def __init__(self, task, work, run=None):
        self.task, self.work, self.run = task, pathlib.Path(work), run

    prefix, environment = (), {}

    def program(self, redline):
        return redline

    @contextlib.contextmanager
    def around(self):
        yield

    def started(self, process):
        """Called once the job runs."""


def cgroup(controller):
    """The folder of this process's own group in a hierarchy of version 1; None where there is none that may be written."""
    try:
        for line in pathlib.Path("/proc/self/cgroup").read_text().splitlines():
            _, names, path = line.split(":", 2)
            if controller in names.split(","):
                folder = pathlib.Path("/sys/fs/cgroup") / names / path.lstrip("/")
                return folder if os.access(folder, os.W_OK) else None
    except OSError:
        pass
    return None


@contextlib.contextmanager
def own_group(controller, settings):
    folder = cgroup(controller) / f"outside-{os.getpid()}"
    folder.mkdir()
    try:
        for name, value in settings.items():
            (folder / name).write_text(str(value))
        yield folder
    finally:
        for _ in range(100):
            try:
                folder.rmdir()
                break
            except OSError:
                time.sleep(0.05)


class Grouped(Fault):
    """The job joins a group before it becomes the program."""
    @property
    def prefix(self):
        return ("sh", "-c", 'echo $$ > "$0/cgroup.procs"; exec "$@"', str(self.folder))


def data_files(work, task):
    kinds = {"speech": ".cache/redline/synth/speech*", "sequences": ".cache/redline/synth/sequences*", "pictures": ".cache/redline/synth/images*", "scenes": ".cache/redline/synth/nuscenes*"}
    for folder in pathlib.Path(work).glob(kinds[task]):
        yield from (path for path in folder.rglob("*") if path.is_file())


def evict(paths):
    for path in paths:
        with contextlib.suppress(OSError):
            fd = os.open(path, os.O_RDONLY)
            try:
                os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
            finally:
                os.close(fd)


class Evicting:
    """Throws the data out of the page cache again and again; at a low priority, as it is no part of the question."""
    def __init__(self, paths, every=0.25):
        self.paths, self.every, self.over = list(paths), every, threading.Event()
        self.thread = threading.Thread(target=self.run)

    def run(self):
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), 19)
        while not self.over.wait(self.every):
            evict(self.paths)

    def __enter__(self):
        evict(self.paths)
        self.thread.start()

    def __exit__(self, *_):
        self.over.set()
        self.thread.join()


@contextlib.contextmanager
def beside(*commands):
    running = [subprocess.Popen([str(word) for word in command], stdout=subprocess.DEVNULL) for command in commands]
    try:
        yield
    finally:
        for one in running:
            one.kill()
            one.wait()


class BusyProcess(Fault):
    """A neighbour that computes, pinned to one of the cores."""
    right = (("contended", "CPU"),)

    @contextlib.contextmanager
    def around(self):
        with beside(["taskset", "-c", CORES[0], sys.executable, "-c", "while True: pass"]):
            yield


class BandwidthHog(Fault):
    """A neighbour on a core that the job leaves free, which copies memory every other 0.7 s. Speech and scenes are left out: decoded on the one thread, their
    data is a limit of its own, with the neighbour and without."""
    right = (("contended", "memory bandwidth"),)
    tasks = ("sequences", "pictures")
    words = removed_words = ("trainer.intra_op_threads=1", "model.train_ds.num_workers=0", "model.train_ds.cache=memory", "model.train_ds.synth.num=640")

    @contextlib.contextmanager
    def around(self):
        with beside(["taskset", "-c", CORES[-1], built(ROOT / "bench/outside/hog.c", self.work / "hog"), 256, 700, 600]):
            yield


class Quota(Grouped):
    """A container's quota of one and a quarter cores."""
    right = (("throttled", None),)
    words = (f"trainer.intra_op_threads={len(CORES)}",)  # what a job takes by itself without the quota

    @contextlib.contextmanager
    def around(self):
        period = 100_000
        with own_group("cpu", {"cpu.cfs_period_us": period, "cpu.cfs_quota_us": int(0.625 * len(CORES) * period)}) as self.folder:
            yield


class StopAndGo(Fault):
    """A limiter that stops the process for a third of every 150 ms."""
    right = (("stop-and-go", None),)
    run_seconds, stop_seconds = 0.10, 0.05

    def started(self, process):
        def stop_and_go():
            while process.poll() is None:
                time.sleep(self.run_seconds)
                with contextlib.suppress(ProcessLookupError):
                    os.kill(process.pid, signal.SIGSTOP)
                    time.sleep(self.stop_seconds)
                    os.kill(process.pid, signal.SIGCONT)
        threading.Thread(target=stop_and_go, daemon=True).start()


class Pinned(Fault):
    """One core of all that are there."""
    right = (("pinned", None),)
    prefix = ("taskset", "-c", str(CORES[0]))


class Shimmed(Fault):
    """A library between the program and libc that makes calls on some files wait."""
    calls, path, delay_us = "read", ".cache/redline/synth", 4000

    @property
    def environment(self):
        shim = built(ROOT / "tests/faults/shim.c", self.work / "shim.so", "-shared", "-fPIC", "-ldl")
        return {"LD_PRELOAD": str(shim), "SHIM_PATH": self.path, "SHIM_CALLS": self.calls, "SHIM_DELAY_US": str(self.delay_us)}


class SlowReads(Shimmed):
    """Each read of a data file takes longer."""
    right = (("slow disk", "reads"),)
    tasks = ("speech", "pictures", "scenes")  # sequences are mapped, not read

    @property
    def delay_us(self):
        return {"speech": 12000, "pictures": 4000, "scenes": 6000}[self.task]


class SlowSyncs(Shimmed):
    """A disk that is slow to confirm, under a job that saves now and then."""
    right = (("slow disk", "checkpoints"),)
    calls, path, delay_us = "fsync", "checkpoints", 350_000
    words = removed_words = ("exp_manager.checkpoint_callback_params.every_n_train_steps=10",)


class SlowDevice(Grouped):
    """A device that the kernel lets read so many blocks a second only, and a page cache that forgets."""
    right = (("slow disk", "reads"),)
    tasks = ("speech", "pictures", "scenes")

    @contextlib.contextmanager
    def around(self):
        device = os.stat(self.work).st_dev
        limit = {"speech": 3_000_000, "pictures": 1_000_000, "scenes": 3_000_000}[self.task]
        with own_group("blkio", {"blkio.throttle.read_bps_device": f"{os.major(device)}:{os.minor(device)} {limit}"}) as self.folder, Evicting(data_files(self.work, self.task)):
            yield


class Eviction(Fault):
    """A page cache that forgets the data, on the disk as it is."""
    right = (("slow disk", "reads"), ("data-bound", "read"))
    tasks = ("speech", "pictures", "scenes")

    @contextlib.contextmanager
    def around(self):
        with Evicting(data_files(self.work, self.task), every=0.15):
            yield


class Reclaim(Grouped):
    """A container that comes with its own copy of the program and a memory limit a little above what the job has written: the kernel takes back code and
    data that are needed again at once."""
    right = (("swapping", None),)
    margin_kib = 16_000

    def program(self, redline):
        image = self.work / "image"
        if not (image / "redline").exists():
            image.mkdir(exist_ok=True)
            listed = subprocess.run(["ldd", redline], capture_output=True, text=True, check=True).stdout
            for path in [word for line in listed.splitlines() for word in line.split()[2:3] if word.startswith("/") and not word.startswith("/lib")]:
                shutil.copy(path, image)
            shutil.copy(redline, image / "redline")
        subprocess.run(["sync"], check=True)
        evict(path for path in image.iterdir())  # who reads a page first is charged for it
        return image / "redline"

    environment = property(lambda self: {"LD_LIBRARY_PATH": str(self.work / "image")})

    @contextlib.contextmanager
    def around(self):
        with own_group("memory", {}) as self.folder:
            yield

    def started(self, process):
        def squeeze():
            rows = self.run / "steps.bin"
            while process.poll() is None and not (rows.exists() and rows.stat().st_size > 64 + 232 * 8):  # its memory has grown to what it needs
                time.sleep(0.05)
            with contextlib.suppress(OSError, ValueError, KeyError):
                text = (self.folder / "memory.stat").read_text()
                own = {line.split()[0]: int(line.split()[1]) for line in text.splitlines()}
                # Below what is written the process would be killed: there is no swap for it.
                (self.folder / "memory.limit_in_bytes").write_text(str(own["rss"] + 1024 * self.margin_kib))
        threading.Thread(target=squeeze, daemon=True).start()


class Threads(Fault):
    """Four times as many threads as cores."""
    right = (("oversubscribed", None),)
    words = (f"trainer.intra_op_threads={4 * len(CORES)}",)


class TinyBatch(Fault):
    """One sample a step. What the doctor says of it is what twice the batch would gain, so that is what is measured."""
    right = (("small-batch-bound", None),)
    words = ("model.train_ds.batch_size=1",)
    removed_words = ("model.train_ds.batch_size=2",)


class Padding(Fault):
    """Samples of all lengths side by side."""
    right = (("padding-bound", None),)
    tasks = ("speech",)
    words = ("model.train_ds.num_buckets=1", "model.train_ds.use_bucketing=false")


class HotLog(Fault):
    """A line for every step, to every place there is."""
    right = (("cadence-bound", "log"),)
    words = ("trainer.log_every_n_steps=1", "exp_manager.create_tensorboard_logger=true", "exp_manager.create_csv_logger=true", "exp_manager.histograms_every_n_steps=1")


class Checkpoints(Fault):
    """A checkpoint after every other step."""
    right = (("cadence-bound", "checkpoint"),)
    words = ("exp_manager.checkpoint_callback_params.every_n_train_steps=2",)


class NoWorkers(Fault):
    """Data made on the training thread."""
    right = (("data-bound", None),)
    tasks = ("speech", "scenes")
    words = ("model.train_ds.num_workers=0",)


FAULTS = {"busy process": BusyProcess, "bandwidth hog": BandwidthHog, "quota": Quota, "stop and go": StopAndGo, "pinned": Pinned, "slow reads": SlowReads,
          "slow syncs": SlowSyncs, "slow device": SlowDevice, "eviction": Eviction, "reclaim": Reclaim, "threads": Threads, "tiny batch": TinyBatch,
          "padding": Padding, "hot log": HotLog, "checkpoints": Checkpoints, "no workers": NoWorkers}
