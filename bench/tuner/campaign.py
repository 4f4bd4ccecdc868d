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
COVERAGE_SECONDS = 40
ALLOW = {"speech": "numerics,order,optimisation", "vae": "numerics,order"}


class Campaign:
    def __init__(self, redline, job, folder):
        self.redline, self.job, self.folder = str(pathlib.Path(redline).resolve()), job, pathlib.Path(folder)
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

    def machine(self):
        return self.stage("machine", lambda: self.call("machine"))

    def settings(self):
        machine = self.machine()
        return jobs.settings(self.job, machine["gemm_bf16_gflops"] / machine["gemm_fp32_gflops"])

    def grid(self):
        def make():
            begin = time.monotonic()
            rows = self.race(self.settings(), 8, "0.15s")
            return {"seconds": time.monotonic() - begin, "rows": [r | {"text": t} for r, t in zip(rows, self.settings())]}
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
                rows = self.race(list(contenders.values()), 10, "0.2s", job="tuned.yaml")
                ratios = {name: row["ratio"] for name, row in zip(contenders, rows)}
                ratios["reference"] = 1 / self.race([choice], 3, "0.2s")[0]["ratio"] if choice else 1.0
                rounds.append(ratios)
            return {"choice": choice, "contenders": contenders, "rounds": rounds}
        return self.stage("final", make)

    def coverage(self, promises=10, budget=f"{COVERAGE_SECONDS}s"):
        """Fresh tunings, each promise against a fresh race; one that promises nothing is kept as such and does not count."""
        def make():
            results, kept = [], 0
            while kept < promises and len(results) < 2 * promises:
                card = self.call("tune", "job.yaml", "--fresh", "--budget", budget, "--allow", ALLOW[self.job], "--card", "coverage_card.json",
                                 "--out", "coverage.yaml")["card"]
                errors = [e["prediction_error_points"] for e in card["ledger"]["entries"] if e["prediction_error_points"] is not None]
                results.append({"values": card["values"], "errors": errors, "budget_seconds": card["budget_seconds"]})
                if card["values"]:
                    kept += 1
                    fresh = self.race([" ".join(f"{v['field']}={v['value']}" for v in card["values"])], 8, "0.15s")[0]
                    promised = card["promised_ratio"]
                    results[-1] |= {"inside": promised["low"] <= fresh["ratio"] <= promised["high"], "promised": promised, "fresh": fresh["ratio"],
                                    "fresh_low": fresh["low"], "fresh_high": fresh["high"]}
                print(json.dumps(results[-1])[:400], file=sys.stderr, flush=True)
            return results
        return self.stage("coverage", make)


if __name__ == "__main__":
    campaign = Campaign(*sys.argv[1:4])
    for name in sys.argv[4:]:
        begin = time.monotonic()
        getattr(campaign, name)()
        print(f"{name}: {time.monotonic() - begin:.0f} s")
