#!/usr/bin/env python3
"""Is the doctor right about the real world? Small jobs of all four tasks run beside faults made from outside (outside/faults.py); `redline doctor RUN`
sees the record of one run and no healthy twin. A fault counts only where the job without it is at least 5 % faster; a control is healthy only where no change
that lifts a limit of its own (twice the batch, more buckets, ...) makes it 5 % faster: measured, not assumed.

  bench/doctor_outside.py BUILD [--repeats 5] [--for 330] [--work FOLDER] [--faults a,b] [--tasks a,b]
  bench/doctor_outside.py BUILD --faults ''         the controls alone, with what lifting their limits gains
  bench/doctor_outside.py BUILD --judge-again     the kept records once more, after the doctor has changed
  bench/doctor_outside.py BUILD --page            writes bench/results/DATE_doctor_outside.md

What is done is kept in the folder and not done again; --for ends it after so many seconds, the next call goes on. Runs during which strangers used the
cores are done again (the kernel's counts, less the job's and the fault's own time). Root is needed for quotas and the throttled device; what cannot
be made here is left out and named.
"""
import argparse
import contextlib
import json
import os
import pathlib
import resource
import shutil
import subprocess
import sys
import time

import numpy

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from outside.faults import FAULTS, cgroup, data_files  # noqa: E402
from outside.jobs import LIFTED, SECONDS, TASKS, write_job  # noqa: E402
from outside.page import write_page  # noqa: E402

ROOT = pathlib.Path(__file__).resolve().parent.parent
ROW = numpy.dtype([("step", "<i8"), ("epoch", "<i8"), ("begin_ns", "<i8"), ("wall_ns", "<i8"), ("times", "V120"), ("samples", "<i4"), ("rest", "V76")])  # docs/formats.md
WARM_UP = 3
BETWEEN_CONTROLS = 4  # faults between two healthy runs
STRANGERS = 0.08      # cores
TRIES = 2


def samples_per_second(run):
    data = (run / "steps.bin").read_bytes()[64:]
    rows = numpy.frombuffer(data[:len(data) // ROW.itemsize * ROW.itemsize], ROW)[WARM_UP:]
    return float(rows["samples"].sum() / (rows["wall_ns"].sum() * 1e-9)) if len(rows) else 0.0


def busy_seconds():
    ticks = [int(word) for word in pathlib.Path("/proc/stat").read_text().splitlines()[0].split()[1:9]]
    return (sum(ticks) - ticks[3] - ticks[4]) / os.sysconf("SC_CLK_TCK")


def yielding_seconds():
    """Of processes that run only where nobody else wants to (SCHED_IDLE): they are no strangers in the way."""
    total = 0
    for path in pathlib.Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError, IndexError, ValueError):
            fields = path.read_text().rpartition(")")[2].split()
            if int(fields[38]) == os.SCHED_IDLE:
                total += int(fields[11]) + int(fields[12])
    return total / os.sysconf("SC_CLK_TCK")


def wait_for_quiet(longest=20):
    """Until nobody else took a core for half a second."""
    end = time.monotonic() + longest
    while time.monotonic() < end:
        begin, busy, yielding = time.monotonic(), busy_seconds(), yielding_seconds()
        time.sleep(0.5)
        if (busy_seconds() - busy - (yielding_seconds() - yielding)) / (time.monotonic() - begin) < 2 * STRANGERS:
            return


def known_seconds():
    """Of this process and of all children that ended."""
    return sum(usage.ru_utime + usage.ru_stime for usage in map(resource.getrusage, (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)))


def train(redline, work, task, fault, words, run):
    """Rate of one run, and the cores that strangers used meanwhile."""
    shutil.rmtree(run, ignore_errors=True)
    wait_for_quiet()
    begin, busy, known = time.monotonic(), busy_seconds() - yielding_seconds(), known_seconds()
    with fault.around() if fault else contextlib.nullcontext():
        program = fault.program(redline) if fault else redline
        command = [*(fault.prefix if fault else ()), str(program), "-q", "train", str(write_job(work, task)), *words, "--run-dir", str(run)]
        log = open(work / "last.log", "w")
        job = subprocess.Popen(command, cwd=work, env={**os.environ, **(fault.environment if fault else {})}, stdout=log, stderr=log)
        if fault:
            fault.run = run
            fault.started(job)
        try:
            job.wait(timeout=SECONDS * 6)
        except subprocess.TimeoutExpired:  # a fault that starves it: what it did so far counts
            job.terminate()
            job.wait()
    if not (run / "steps.bin").exists():
        raise RuntimeError(f"{' '.join(command)} made no record:\n{(work / 'last.log').read_text()[-1500:]}")
    seconds = time.monotonic() - begin
    strangers = (busy_seconds() - yielding_seconds() - busy - (known_seconds() - known)) / seconds
    for heavy in ("checkpoints", "tensorboard"):
        shutil.rmtree(run / heavy, ignore_errors=True)
    return samples_per_second(run), max(0.0, strangers)


def answer(redline, run):
    done = subprocess.run([str(redline), "--json", "doctor", str(run)], capture_output=True, text=True)
    if done.returncode != 0:
        return {"verdict": "failed", "detail": done.stderr[-300:], "gain": 0.0, "sentence": "", "scores": []}
    found = json.loads(done.stdout)["runs"][0]["diagnosis"]
    named = [score for score in found["scores"] if score["limit"] == found["verdict"] and score["detail"] == found["detail"]] if "scores" in found else []
    return {"verdict": found["verdict"], "detail": found["detail"], "gain": named[0]["gain"] if named else 0.0, "confidence": found["confidence"],
            "sentence": found["sentence"], "scores": [[s["limit"], s["detail"], round(s["gain"], 4)] for s in found.get("scores", [])[:4]]}


def plan(faults, tasks, repeats):
    """Keys of all runs in order: (repeat, task, fault or 'healthy' or 'lifted ...', place). Healthy runs stand between the others; some faults have a twin of
    their own."""
    for repeat in range(repeats):
        for task in tasks:
            fitting = [name for name in faults if task in FAULTS[name].tasks]
            fitting = fitting[repeat % len(fitting):] + fitting[:repeat % len(fitting)] if fitting else []
            place = 0
            yield (repeat, task, "healthy", place)
            for name, (changes, _) in LIFTED.items():
                if task in changes:
                    yield (repeat, task, f"lifted {name}", place)
            place += 1
            yield (repeat, task, "healthy", place)
            for i, name in enumerate(fitting):
                yield (repeat, task, name, place)
                if FAULTS[name].removed_words:
                    yield (repeat, task, f"without {name}", place)
                if (i + 1) % BETWEEN_CONTROLS == 0 or i + 1 == len(fitting):
                    place += 1
                    yield (repeat, task, "healthy", place)


def possible(name):
    controller = {"quota": "cpu", "reclaim": "memory", "slow device": "blkio"}.get(name)
    return controller is None or cgroup(controller) is not None


class State:
    """One line of JSON a run; the last of a key counts."""
    def __init__(self, path):
        self.path, self.runs = path, {}
        if path.exists():
            for line in path.read_text().splitlines():
                one = json.loads(line)
                self.runs[tuple(one["key"])] = one

    def add(self, one):
        self.runs[tuple(one["key"])] = one
        with self.path.open("a") as file:
            file.write(json.dumps(one) + "\n")


def one_run(redline, work, key):
    repeat, task, name, place = key
    fault, words = None, ()
    if name.startswith("without "):
        words = FAULTS[name.removeprefix("without ")].removed_words
    elif name.startswith("lifted "):
        words = LIFTED[name.removeprefix("lifted ")][0][task]
    elif name != "healthy":
        fault = FAULTS[name](task, work)
        words = fault.words
    if not any(True for _ in data_files(work, task)):  # the run that makes the data is no twin of those that find it
        train(redline, work, task, None, (), work / "runs" / f"first_{task}")
    run = work / "runs" / f"{repeat}_{task}_{name.replace(' ', '_')}_{place}"
    for attempt in range(TRIES):
        rate, strangers = train(redline, work, task, fault, words, run)
        if strangers < STRANGERS:
            break
    return {"key": list(key), "run": str(run), "rate": rate, "strangers": round(strangers, 3), "tries": attempt + 1, "answer": answer(redline, run)}


def show(one):
    _, task, name, _ = one["key"]
    said = one["answer"]
    print(f"{task:10} {name:24} {one['rate']:9.1f}/s  strangers {one['strangers']:.2f} ({one['tries']})  {said['verdict']} ({said['detail']}) {100 * said['gain']:+.0f} %   {said['scores'][:3]}", flush=True)


def main():
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("build")
    arguments.add_argument("--repeats", type=int, default=5)
    arguments.add_argument("--for", dest="seconds", type=float, default=1e9)
    arguments.add_argument("--work", default=str(ROOT / ".cache/doctor_outside"))
    arguments.add_argument("--faults", default=",".join(FAULTS))
    arguments.add_argument("--tasks", default=",".join(TASKS))
    arguments.add_argument("--judge-again", action="store_true")
    arguments.add_argument("--page", action="store_true")
    arguments.add_argument("--note", default="", help="a sentence for the page, such as what was not run")
    chosen = arguments.parse_args()
    redline = pathlib.Path(chosen.build).resolve() / "redline"
    work = pathlib.Path(chosen.work).resolve()
    (work / "runs").mkdir(parents=True, exist_ok=True)
    state = State(work / "state.jsonl")
    if chosen.judge_again:
        for one in list(state.runs.values()):
            one["answer"] = answer(redline, one["run"])
            state.add(one)
            if one["key"][2] in chosen.faults.split(",") or chosen.faults == ",".join(FAULTS):
                show(one)
    elif not chosen.page:
        names = [name for name in chosen.faults.split(",") if name and possible(name)]
        end = time.monotonic() + chosen.seconds
        for key in plan(names, chosen.tasks.split(","), chosen.repeats):
            if key in state.runs:
                continue
            if time.monotonic() > end:
                print("The time is over; the next call goes on here.")
                break
            one = one_run(redline, work, key)
            state.add(one)
            show(one)
    if chosen.page:
        print(write_page(ROOT, redline, [one for one in state.runs.values()], [name for name in FAULTS if not possible(name)], chosen.note))


if __name__ == "__main__":
    main()
