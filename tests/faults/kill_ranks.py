#!/usr/bin/env python3
"""kill_ranks.py [--kills 100] [--stops 50] [--ranks 2] [--seed 1] [--folder DIR]: ranks of a training are killed or stopped at random, also inside the
exchange of gradients and inside a checkpoint, and the same command goes on each time. Promised, and counted here: nobody hangs, nobody is left behind, the
right rank is named with its phase, and the run ends bit for bit as one that was left alone (so no sample is lost or seen twice). Exit code 1 when not."""
import argparse
import collections
import dataclasses
import json
import os
import pathlib
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "python"))
from rank_jobs import bit_equal, children, last_step, launch, make_home, newest, running, start, wait_for  # noqa: E402

STEPS = 60
# So long that a random moment lies inside them more often than not.
LONGER = {"anywhere": {}, "reduce": {"REDLINE_FAULTS": "delay.reduce@40"}, "checkpoint": {"REDLINE_FAULTS": "delay.checkpoint@250"}}


@dataclasses.dataclass
class Outcome:
    how: str
    where: str
    rank: int = -1
    step: int = 0
    phase: str = ""
    seconds: float = 0.0  # from the signal to the end of all
    problem: str = ""
    ended: bool = False  # the run came to its end before


class Campaign:
    def __init__(self, home, folder, ranks=2, seed=1, peer_timeout=3, job="vae"):
        self.home, self.folder, self.ranks, self.peer_timeout = home, pathlib.Path(folder), ranks, peer_timeout
        self.chance = random.Random(seed)
        self.words = [f"{job}.yaml", f"trainer.max_steps={STEPS}", "exp_manager.checkpoint_callback_params.every_n_train_steps=7",
                      "trainer.val_check_interval=0.5", f"trainer.strategy.peer_timeout={peer_timeout}s"]
        launch(home, ranks, *self.words, f"--run-dir={self.folder}/whole")
        self.runs = 0
        self.run = self.folder / "run0"

    def lose_one(self, how, where):
        outcome = Outcome(how, where)
        before = last_step(self.run)
        process = start(self.home, "launch", "-n", self.ranks, "--", "train", *self.words, f"--run-dir={self.run}", env=LONGER[where])
        pids = []
        try:
            try:
                wait_for(lambda: last_step(self.run) > before + 1 or process.poll() is not None)
                time.sleep(self.chance.random() * (0.6 if LONGER[where] else 0.15))
                pids = children(process.pid)
                ended = process.poll() is not None or len(pids) < self.ranks
                err = process.communicate(timeout=60)[1] if ended else ""
            except (AssertionError, subprocess.TimeoutExpired):
                outcome.problem = f"nothing was done to it, and it hangs at step {last_step(self.run)}"
                return outcome
            if ended and process.returncode != 0:
                outcome.problem = f"nothing was done to it, and it ended with code {process.returncode}: {err[-600:]}"
                return outcome
            if ended:
                return self.begin_anew(how, where)
            outcome.rank = self.chance.randrange(self.ranks)
            began = time.monotonic()
            try:
                os.kill(pids[outcome.rank], getattr(signal, how))
            except ProcessLookupError:  # it came to its end a moment ago, and the others do too
                outcome.problem = f"a rank ended by itself, with code {process.wait(60)}" if process.wait(60) else ""
                return outcome if outcome.problem else self.begin_anew(how, where)
            try:
                _, err = process.communicate(timeout=self.peer_timeout + 30)
            except subprocess.TimeoutExpired:
                outcome.problem = "hangs"
                return outcome
            outcome.seconds = time.monotonic() - began
            if process.returncode == 0:
                return self.begin_anew(how, where)
            outcome.problem = self.judge(outcome, process.returncode, err, pids)
            outcome.step = last_step(self.run)
            return outcome
        finally:
            for pid in [process.pid, *pids]:
                if running(pid):
                    os.kill(pid, signal.SIGKILL)
            process.communicate()

    def judge(self, outcome, code, err, pids):
        if code != 8:
            return f"exit code {code}: {err[-400:]}"
        if not re.search(rf"Rank {outcome.rank}\b", err) or re.search(rf"Rank (?!{outcome.rank}\b)\d+ (was killed|has given no sign)", err):
            return f"rank {outcome.rank} is not the one that is named: {err[-600:]}"
        # After the last barrier its work is done, and only the launcher is left to say who was killed or stopped.
        after = f"last seen after its last step, {STEPS}" in err
        seen = re.search(r"last seen in (\w+) of step (\d+)", err)
        if not seen and not after:
            return f"no phase is named: {err[-600:]}"
        outcome.phase = seen[1] if seen else "after the last step"
        if any(running(pid) for pid in pids):
            return "an orphan"
        if outcome.seconds > self.peer_timeout + 8:
            return f"took {outcome.seconds:.1f} s"
        return ""

    def begin_anew(self, how, where):
        """The run had come to its end: it is looked at, and the next one begins."""
        problem = self.finish()
        shutil.rmtree(self.run, ignore_errors=True)
        self.runs += 1
        self.run = self.folder / f"run{self.runs}"
        return self.lose_one(how, where) if not problem else Outcome(how, where, problem=problem)

    def finish(self):
        launch(self.home, self.ranks, *self.words, f"--run-dir={self.run}")
        if last_step(self.run) != STEPS:
            return f"the run ended at step {last_step(self.run)}"
        return "" if bit_equal(self.run, self.folder / "whole") else f"{newest(self.run)} is not what an undisturbed run ends with"


def main():
    parser = argparse.ArgumentParser()
    for name, value in (("kills", 100), ("stops", 50), ("ranks", 2), ("seed", 1)):
        parser.add_argument(f"--{name}", type=int, default=value)
    parser.add_argument("--folder")
    parser.add_argument("--seconds", type=float, default=1e9, help="begin nothing new after this")
    arguments = parser.parse_args()
    folder = pathlib.Path(arguments.folder or tempfile.mkdtemp(prefix="kill_ranks_"))
    folder.mkdir(parents=True, exist_ok=True)
    campaign = Campaign(make_home(folder), folder, arguments.ranks, arguments.seed)
    order = ["SIGKILL"] * arguments.kills + ["SIGSTOP"] * arguments.stops
    campaign.chance.shuffle(order)
    began, counts, phases, slowest, bad = time.monotonic(), collections.Counter(), collections.Counter(), collections.defaultdict(float), []
    for number, how in enumerate(order):
        if time.monotonic() - began > arguments.seconds:
            break
        outcome = campaign.lose_one(how, list(LONGER)[number % 3])
        counts[how, outcome.where] += 1
        phases[outcome.phase] += 1
        slowest[how] = max(slowest[how], outcome.seconds)
        if outcome.problem:
            bad.append(dataclasses.asdict(outcome))
            print(json.dumps(bad[-1]), flush=True)
    end = campaign.finish()
    if end:
        bad.append({"problem": end})
    print(json.dumps({"done": {f"{how} {where}": n for (how, where), n in sorted(counts.items())}, "ranks": arguments.ranks, "seed": arguments.seed,
                      "runs_compared_bit_for_bit": campaign.runs + 1, "phases_named": dict(phases), "slowest_seconds": {k: round(v, 2) for k, v in slowest.items()},
                      "problems": bad}, indent=1))
    if not arguments.folder:
        shutil.rmtree(folder, ignore_errors=True)
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
