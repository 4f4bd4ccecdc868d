#!/usr/bin/env python3
"""Tuner against an exhaustive grid, and its promises against fresh runs. Each stage is kept in a file, so a campaign can go on later.

campaign.py REDLINE speech|vae FOLDER grid|tune|final|coverage ...
"""
import json
import pathlib
import subprocess
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import jobs

ROOT = pathlib.Path(__file__).resolve().parents[2]
FINAL_ROUNDS = 10
ALLOW = {"speech": "numerics,order,optimisation", "vae": "numerics,order"}


class Campaign:
    def __init__(self, redline, job, folder):
        self.redline, self.job, self.folder = str(redline), job, pathlib.Path(folder)
        self.folder.mkdir(parents=True, exist_ok=True)
        (self.folder / "job.yaml").write_text(jobs.RECIPES[job].format(root=ROOT))

    def call(self, *words):
        done = subprocess.run([self.redline, "--json", *map(str, words)], capture_output=True, text=True, cwd=self.folder)
        if done.returncode != 0:
            raise RuntimeError(f"{words[:3]} failed with {done.returncode}: {done.stderr[-2000:]}")
        return json.loads(done.stdout)

    def race(self, settings, blocks, turn, job="job.yaml"):
        with_words = [word for setting in settings for word in ("--with", setting)]
        return self.call("race", job, "--blocks", blocks, "--turn", turn, *with_words)["settings"]

    def stage(self, name, make):
        path = self.folder / f"{name}.json"
        if not path.exists():
            path.write_text(json.dumps(make(), indent=1))
        return json.loads(path.read_text())

    def grid(self):
        def make():
            begin = time.monotonic()
            rows = self.race(jobs.settings(self.job), 8, "0.15s")
            return {"seconds": time.monotonic() - begin, "rows": [r | {"text": t} for r, t in zip(rows, jobs.settings(self.job))]}
        return self.stage("grid", make)

    def tune(self):
        grid = self.grid()

        def make():
            begin = time.monotonic()
            answer = self.call("tune", "job.yaml", "--fresh", "--budget", f"{0.14 * grid['seconds']:.0f}s", "--allow", ALLOW[self.job],
                               "--card", "card.json", "--out", "tuned.yaml")
            return {"seconds": time.monotonic() - begin, "answer": answer}
        return self.stage("tune", make)

    def choice(self):
        return " ".join(f"{v['field']}={v['value']}" for v in self.tune()["answer"]["card"]["values"])

    def final(self):
        """The grid's top three in turns with the tuner's choice, and that in turns with the reference, each round in new processes."""
        top = sorted((r for r in self.grid()["rows"] if "ratio" in r), key=lambda r: -r["ratio"])[:3]
        contenders = {f"grid {i + 1}": row["text"] for i, row in enumerate(top)}

        def make():
            choice, rounds = self.choice(), []
            for _ in range(FINAL_ROUNDS):
                rows = self.race(list(contenders.values()), 4, "0.2s", job="tuned.yaml")
                ratios = {name: row["ratio"] for name, row in zip(contenders, rows)}
                ratios["reference"] = 1 / self.race([choice], 3, "0.2s")[0]["ratio"] if choice else 1.0
                rounds.append(ratios)
            return {"choice": choice, "contenders": contenders, "rounds": rounds}
        return self.stage("final", make)

    def coverage_so_far(self):
        path = self.folder / "coverage.json"
        return json.loads(path.read_text()) if path.exists() else []

    def coverage(self, runs=10, budget="20s"):
        def make():
            results = []
            for i in range(runs):
                card = self.call("tune", "job.yaml", "--fresh", "--budget", budget, "--allow", ALLOW[self.job], "--card", f"card{i}.json",
                                 "--out", "coverage.yaml")["card"]
                if not card["values"]:
                    results.append({"values": [], "inside": True, "promised": card["promised_ratio"], "fresh": 1.0})
                    continue
                fresh = self.race([" ".join(f"{v['field']}={v['value']}" for v in card["values"])], 5, "0.15s")[0]
                inside = card["promised_ratio"]["low"] <= fresh["ratio"] <= card["promised_ratio"]["high"]
                results.append({"values": card["values"], "inside": inside, "promised": card["promised_ratio"], "fresh": fresh["ratio"],
                                "fresh_low": fresh["low"], "fresh_high": fresh["high"],
                                "errors": [e["prediction_error_points"] for e in card["ledger"]["entries"] if e["prediction_error_points"] is not None]})
                print(json.dumps(results[-1])[:200], file=sys.stderr)
            return results
        return self.stage("coverage", make)


if __name__ == "__main__":
    campaign = Campaign(*sys.argv[1:4])
    for name in sys.argv[4:]:
        begin = time.monotonic()
        getattr(campaign, name)()
        print(f"{name}: {time.monotonic() - begin:.0f} s")
