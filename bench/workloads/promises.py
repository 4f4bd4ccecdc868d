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

    def kept(path, make):
        """What a campaign that was stopped had done already is not done again; remove the folder to begin anew."""
        if not path.exists():
            answer = make()
            path.with_suffix(".part").write_text(json.dumps(answer))
            path.with_suffix(".part").rename(path)
        return json.loads(path.read_text())

    def tuned(i, busy, place):
        with whole_runs.busy_neighbour(busy):
            return whole_runs.tune(env.redline, place, BUDGET)

    def held_against(i, busy, place, promised):
        with whole_runs.busy_neighbour(busy):
            seconds = {recipe: whole_runs.train_seconds(env.redline, place, recipe, f"run-{recipe}") for recipe in ("job.yaml", "tuned.yaml")}
        ratio = seconds["job.yaml"] / seconds["tuned.yaml"]
        return {"tuning": i, "busy": busy, "low": promised["low"], "high": promised["high"], "ratio": ratio,
                "inside": promised["low"] <= ratio <= promised["high"]}

    def run():
        cards, rows = [], []
        # All tunings first, all runs after them: another time, as a user's run is.
        for i in range(TUNINGS):
            busy = i % 2 == 1
            place = whole_runs.write_job(folder / str(i), i // 2)
            cards.append((i, busy, place, kept(place / "tuned.json", lambda: tuned(i, busy, place))))
        for i, busy, place, card in cards:
            if card["values"]:  # without any it promises nothing
                rows.append(kept(place / "held.json", lambda: held_against(i, busy, place, card["promised_ratio"])))
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
