"""Runs a command and adds to its JSON line the peak proportional set size (PSS) of its whole process tree, sampled from outside.

PSS counts a page shared by n processes as 1/n, so worker processes are not charged twice for what they share.
    tree.py COMMAND ...
"""
import json
import pathlib
import subprocess
import sys
import threading


def children(pid):
    found = [pid]
    for task in pathlib.Path(f"/proc/{pid}/task").glob("*/children"):
        try:
            for child in task.read_text().split():
                found += children(int(child))
        except OSError:
            pass
    return found


def pss_bytes(pid):
    total = 0
    for one in children(pid):
        try:
            for line in pathlib.Path(f"/proc/{one}/smaps_rollup").read_text().splitlines():
                if line.startswith("Pss:"):
                    total += int(line.split()[1]) * 1024
        except OSError:
            pass
    return total


def main():
    process = subprocess.Popen(sys.argv[1:], stdout=subprocess.PIPE, text=True)
    peak = 0
    stop = threading.Event()

    def watch():
        nonlocal peak
        while not stop.wait(0.25):
            peak = max(peak, pss_bytes(process.pid))

    watcher = threading.Thread(target=watch)
    watcher.start()
    out, _ = process.communicate()
    stop.set()
    watcher.join()
    if process.returncode != 0:
        sys.exit(process.returncode)
    figures = json.loads([line for line in out.splitlines() if line.startswith("{")][-1])
    figures["peak_pss_bytes"] = peak
    print(json.dumps(figures))


main()
