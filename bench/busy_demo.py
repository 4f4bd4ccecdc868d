#!/usr/bin/env python3
"""`make demo` again and again, every other time beside a process that takes one core at random half of the time: does its last line hold?

  bench/busy_demo.py BUILD [--times 10] [--for SECONDS] [--work FOLDER]      goes on where it was; --page writes the page

Holds: the measured gain lies inside the promise, or the line says that the machine was too busy to tell, or nothing was kept.
"""
import argparse
import datetime
import json
import os
import pathlib
import re
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
BUSY = """
import random, sys, time
draw = random.Random(int(sys.argv[1]))
while True:
    end = time.monotonic() + draw.uniform(0.5, 4)
    if draw.random() < 0.5:
        while time.monotonic() < end: pass
    else:
        time.sleep(end - time.monotonic())
"""


def judge(text):
    """Of the demo's last sentence: (holds, what it says)."""
    text = " ".join(text.split())
    found = re.findall(r"Everything kept, as a whole run: (.*?)(?= The page with everything|$)", text)
    if not found:
        return False, "no last line"
    said = found[-1]
    if "too busy to tell" in said or "No switch was worth keeping" in text:
        return True, said
    numbers = re.search(r"([\d.]+)x \(.*promised ([\d.]+)x to ([\d.]+)x\)", said)
    if not numbers:
        return False, said
    measured, low, high = map(float, numbers.groups())
    return low <= measured <= high, said


def one_demo(build, busy, number):
    neighbour = subprocess.Popen([sys.executable, "-c", BUSY, str(number)]) if busy else None
    begin = time.monotonic()
    try:
        done = subprocess.run([str(ROOT / "tools/demo"), build], capture_output=True, text=True, cwd=ROOT, timeout=1500)
    finally:
        if neighbour:
            neighbour.kill()
            neighbour.wait()
    holds, said = judge(done.stdout) if done.returncode == 0 else (False, done.stderr[-400:])
    return {"number": number, "busy": busy, "holds": holds, "said": said, "seconds": time.monotonic() - begin}


def page(results):
    lines = [f"# busy_demo, {datetime.date.today().isoformat()}", "",
             f"`make demo`{' with DEMO_BUDGET=' + os.environ['DEMO_BUDGET'] if 'DEMO_BUDGET' in os.environ else ''}, every other time beside a process that takes one core at random half of the time. Reproduce: `bench/busy_demo.py build`.", "",
             f"{sum(r['holds'] for r in results)} of {len(results)} hold (bar: 10 of 10).", "", "| neighbour | holds | last line | seconds |", "|---|---|---|---|"]
    lines += [f"| {'yes' if r['busy'] else 'no'} | {'yes' if r['holds'] else '**no**'} | {r['said']} | {r['seconds']:.0f} |" for r in results]
    return "\n".join(lines) + "\n"


def main():
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("build")
    arguments.add_argument("--times", type=int, default=10)
    arguments.add_argument("--for", dest="seconds", type=float, default=1e9)
    arguments.add_argument("--work", type=pathlib.Path, default=ROOT / ".cache/busy_demo")
    arguments.add_argument("--page", action="store_true")
    chosen = arguments.parse_args()
    chosen.work.mkdir(parents=True, exist_ok=True)
    state = chosen.work / "state.jsonl"
    results = [json.loads(line) for line in state.read_text().splitlines()] if state.exists() else []
    end = time.monotonic() + chosen.seconds
    while not chosen.page and len(results) < chosen.times and time.monotonic() < end:
        results.append(one_demo(chosen.build, len(results) % 2 == 1, len(results)))
        with state.open("a") as file:
            file.write(json.dumps(results[-1]) + "\n")
        print(json.dumps(results[-1]), flush=True)
    if chosen.page or len(results) >= chosen.times:
        path = ROOT / "bench/results" / f"{datetime.date.today().isoformat()}_busy_demo.md"
        path.write_text(page(results))
        print(path)


if __name__ == "__main__":
    main()
