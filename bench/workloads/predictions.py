"""The doctor's predictions against what blocks alone showed, in full ledgers of the guides' starting points."""
import math
import os
import statistics
import sys

from frame import ROOT, Bar, Workload

sys.path.insert(0, str(ROOT / "bench/tuner"))
import ledgers  # noqa: E402

BUDGET = int(os.environ.get("REDLINE_LEDGER_SECONDS", "600"))


def judged(card):
    """Rows that were predicted and measured, threads aside, where either exceeds 5 %."""
    rows = [e for e in card["ledger"]["entries"] if e["predicted"] and e["predicted_interval"] and e["measured"] and "intra_op_threads" not in e["field"]]
    return [e for e in rows if max(abs(e["predicted"] - 1), abs(e["measured"]["ratio"] - 1)) > 0.05]


def covered(entry):
    """Prediction and measurement differ by no more than both intervals together allow."""
    half = [math.log(i["high"] / max(1e-9, i["low"])) / 2 for i in (entry["predicted_interval"], entry["measured"]["interval"])]
    return abs(math.log(entry["predicted"] / entry["measured"]["ratio"])) <= math.hypot(*half)


def story(rows):
    lines = ["| job | switch | predicted | blocks alone | covered |", "|---|---|---|---|---|"]
    for job, e in rows:
        low, high = e["predicted_interval"]["low"], e["predicted_interval"]["high"]
        lines.append(f"| {job} | {e['field']} {e['from']} → {e['to']} | {ledgers.percent(e['predicted'])} ({ledgers.percent(low)} to {ledgers.percent(high)}) | "
                     f"{ledgers.estimate(e['measured'])} | {'yes' if covered(e) else '**no**'} |")
    return "\n".join(lines)


def workload(env):
    def run():
        rows = [(job, e) for job in ledgers.JOBS for e in judged(ledgers.kept_ledger(env.redline, env.work / "predictions", job, BUDGET)["card"])]
        load.notes = story(rows)
        errors = [abs(100 * (e["predicted"] - e["measured"]["ratio"])) for _, e in rows]
        return {"rows": len(rows), "median_error_points": statistics.median(errors) if errors else 0.0,
                "not_covered_percent": 100 * sum(not covered(e) for _, e in rows) / max(1, len(rows))}

    load = Workload(name="predictions", sentence=f"Full ledgers of {BUDGET} s of the guides' starting points of all tasks; rows without threads where prediction or outcome exceeds 5 %",
                    variants={"doctor": run}, rounds=1,
                    bars=[Bar("median_error_points", "doctor", "doctor", smaller_is_better=True, at_most=5, sentence="predicted less measured, percentage points"),
                          Bar("not_covered_percent", "doctor", "doctor", smaller_is_better=True, at_most=10, sentence="outside the intervals")])
    return load
