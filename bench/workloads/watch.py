"""What `redline watch` costs beside a running job: processor time of its looks, as a share of a core. Starting the program is taken off: it comes once."""
import os
import pathlib
import signal
import subprocess
import sys
import time

from frame import Bar, Workload

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
from outside.jobs import write_job  # noqa: E402


def cpu_of(command, seconds=None):
    """Processor seconds of a command, interrupted after `seconds`, and what it wrote."""
    begin = time.monotonic()
    process = subprocess.Popen([str(word) for word in command], stdout=subprocess.PIPE, text=True)
    if seconds:
        time.sleep(seconds)
        process.send_signal(signal.SIGINT)
    out = process.stdout.read()
    _, _, usage = os.wait4(process.pid, 0)
    return usage.ru_utime + usage.ru_stime, time.monotonic() - begin, out


def workload(env):
    work = env.work / "watch"
    work.mkdir(exist_ok=True)

    def run():
        run = work / "run"
        subprocess.run(["rm", "-rf", str(run)], check=True)
        job = subprocess.Popen([str(env.redline), "-q", "train", str(write_job(work, "sequences")), "trainer.max_time=60s", "--run-dir", str(run)], cwd=work, stdout=subprocess.DEVNULL)
        try:
            while not (run / "steps.bin").exists() or (run / "steps.bin").stat().st_size < 64 + 40 * 232:
                time.sleep(0.1)
            start, _, _ = cpu_of([env.redline, "watch", run, "--once"])
            cpu, seconds, out = cpu_of([env.redline, "watch", run], 20)
        finally:
            job.terminate()
            job.wait()
        looks = len(out.splitlines())
        return {"cpu_percent": 100 * max(0.0, cpu - start) / seconds, "start_cpu_seconds": start, "looks": looks, "with_start_percent": 100 * cpu / seconds}

    return Workload(name="watch", sentence="`redline watch` on a running job, a look a second for 20 s", variants={"redline": run},
                    bars=[Bar("cpu_percent", "redline", "redline", smaller_is_better=True, at_most=1.0, sentence="of a core")], rounds=2)
