"""A job beside a neighbour as a workload: the same default job alone, and two of them started together on the same cores.

A rate is steps per second over the same steps of the same job, so what is compared did the same work; a job that is starved is stopped by
its time limit and its rate is over the steps it made. Of two jobs the slower one counts. `spinning` is how redline waited before its waits
were bounded: another build named by REDLINE_OLD, or this one with the spin count that is libgomp's own default.
"""
import os
import pathlib
import subprocess
import tempfile

import numpy

from frame import Bar, Workload

ROOT = pathlib.Path(__file__).resolve().parent.parent
HEADER = 64
ROW = numpy.dtype([("step", "i8"), ("epoch", "i8"), ("begin", "i8"), ("wall", "i8"), ("rest", "V200")])  # measure/step_row.h
OWN = ("GOMP_SPINCOUNT", "OMP_WAIT_POLICY")


def steps_per_second(record, warm_up):
    data = record.read_bytes()[HEADER:]
    rows = numpy.frombuffer(data[:len(data) // ROW.itemsize * ROW.itemsize], ROW)
    rows = rows[rows["step"] > warm_up] if len(rows) > warm_up else rows[1:] if len(rows) > 1 else rows
    return float(len(rows) / ((rows["begin"][-1] + rows["wall"][-1] - rows["begin"][0]) * 1e-9))


def run_together(redline, words, folder, jobs, steps, warm_up, seconds, settings):
    """Steps per second of each of `jobs` equal jobs that are started together."""
    with tempfile.TemporaryDirectory(dir=folder) as work:
        runs = [pathlib.Path(work) / f"job{i}" for i in range(jobs)]
        environment = {name: value for name, value in os.environ.items() if name not in OWN} | settings
        started = [subprocess.Popen([str(redline), "-q", "train", *map(str, words), f"trainer.max_steps={steps}", f"trainer.max_time={seconds}s",
                                     "--run-dir", str(run)], cwd=folder, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
                   for run in runs]
        for job in started:
            said = job.communicate()[1]
            if job.returncode != 0:
                raise RuntimeError(f"{' '.join(job.args)} failed with {job.returncode}:\n{said[-2000:]}")
        return [steps_per_second(run / "steps.bin", warm_up) for run in runs]


def neighbour_workload(env, name, task, words, steps, warm_up, rounds, seconds=20):
    old = os.environ.get("REDLINE_OLD")
    spinning = (old or env.redline, {} if old else {"GOMP_SPINCOUNT": "300000"})
    folder = env.work / "neighbour"
    folder.mkdir(exist_ok=True)

    def variant(redline, settings, jobs):
        def run():
            rates = run_together(redline, words, folder, jobs, steps, warm_up, seconds, settings)
            return {"steps_per_second": min(rates), "faster_of_both": max(rates)}
        return run

    run_together(env.redline, words, folder, 1, 1, 0, seconds, {})  # makes the data
    figure = "steps_per_second"
    return Workload(
        name=name, sentence=f"{task}: one default job alone and two started together on the same cores; of two the slower counts",
        variants={"alone": variant(env.redline, {}, 1), "spinning alone": variant(*spinning, 1),
                  "two": variant(env.redline, {}, 2), "spinning two": variant(*spinning, 2)},
        bars=[Bar(figure, "two", "alone", at_least=0.45, sentence="each of two jobs against one alone"),
              Bar(figure, "alone", "spinning alone", at_least=0.98, sentence="alone, against waiting that spins"),
              Bar(figure, "two", "spinning two", at_least=1.0, sentence="each of two, against waiting that spins")],
        rounds=rounds, notes=f"`redline train {' '.join(str(word).replace(str(ROOT) + '/', '') for word in words)}`, steps {warm_up + 1} to {steps}; at most {seconds} s a job. "
        f"Spinning: {'another build' if old else 'GOMP_SPINCOUNT=300000'}.")
