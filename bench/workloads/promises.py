"""Forty tunings, each held against two whole training runs made later, half of them beside a busy neighbour."""
import json
import os
import statistics
import sys

from frame import ROOT, Bar, Workload

sys.path.insert(0, str(ROOT / "bench/tuner"))
import whole_runs  # noqa: E402

TUNINGS = int(os.environ.get("REDLINE_PROMISES", "40"))
BUDGET = 24


def story(kept):
    lines = ["| tuning | neighbour | promised | two whole runs | inside |", "|---|---|---|---|---|"]
    lines += [f"| {row['tuning']} | {'busy' if row['busy'] else 'none'} | {row['low']:.2f} to {row['high']:.2f} | {row['ratio']:.2f} | {'yes' if row['inside'] else '**no**'} |" for row in kept]
    return "\n".join(lines)


def workload(env):
    folder = env.work / "promises"
    folder.mkdir(parents=True, exist_ok=True)
    log = folder / "promises.jsonl"
    log.write_text("")

    def run():
        cards, rows = [], []
        # All tunings first, all runs after them: another time, as a user's run is.
        for i in range(TUNINGS):
            busy = i % 2 == 1
            place = whole_runs.write_job(folder / str(i), i // 2)
            with whole_runs.busy_neighbour(busy):
                cards.append((i, busy, place, whole_runs.tune(env.redline, place, BUDGET)))
        for i, busy, place, card in cards:
            if not card["values"]:
                continue  # it promises nothing
            with whole_runs.busy_neighbour(busy):
                seconds = {recipe: whole_runs.train_seconds(env.redline, place, recipe, f"run-{recipe}") for recipe in ("job.yaml", "tuned.yaml")}
            ratio, promised = seconds["job.yaml"] / seconds["tuned.yaml"], card["promised_ratio"]
            rows.append({"tuning": i, "busy": busy, "low": promised["low"], "high": promised["high"], "ratio": ratio,
                         "inside": promised["low"] <= ratio <= promised["high"]})
            with log.open("a") as out:
                out.write(json.dumps(rows[-1]) + "\n")
        load.notes = story(rows)
        # Of forty at least 37; where some tunings promised nothing, the same share of those that did.
        allowed = 3 * len(rows) / 40
        return {"promises": len(rows), "broken": sum(not row["inside"] for row in rows), "broken_over_allowed": sum(not row["inside"] for row in rows) / max(1, allowed),
                "median_width": statistics.median(row["high"] / row["low"] for row in rows) if rows else 99, "nothing_promised": TUNINGS - len(rows)}

    load = Workload(name="promises", sentence=f"{TUNINGS} tunings of {BUDGET} s, each against two whole `redline train` runs (as it was, tuned) made after all tunings; every second one "
                    "tuned and run beside a process that never rests on one core", variants={"tuner": run}, rounds=1,
                    bars=[Bar("broken_over_allowed", "tuner", "tuner", smaller_is_better=True, at_most=1, sentence="promises broken, over 3 of 40"),
                          Bar("median_width", "tuner", "tuner", smaller_is_better=True, at_most=1.25, sentence="upper over lower end, median"),
                          Bar("nothing_promised", "tuner", "tuner", smaller_is_better=True, at_most=TUNINGS // 4, sentence="tunings that changed nothing")])
    return load
