"""A hundred tunings of a job against itself: its switches are names of the run, so each claim of a gain is false."""
import json
import os
import sys

from frame import ROOT, Bar, Workload

sys.path.insert(0, str(ROOT / "bench/tuner"))
import whole_runs  # noqa: E402

TUNINGS = int(os.environ.get("REDLINE_TUNINGS", "100"))
BUDGET, NAMES = 16, 10


def workload(env):
    folder = env.work / "same_against_same"

    def answer(i):
        """One tuning; kept, so that a campaign that was stopped goes on."""
        kept = folder / f"answer_{i}.json"
        if not kept.exists():
            kept.write_text(json.dumps(whole_runs.same_against_same(env.redline, whole_runs.write_job(folder / str(i % len(whole_runs.SIZES)), i), BUDGET, NAMES)))
        return json.loads(kept.read_text())

    def run():
        folder.mkdir(parents=True, exist_ok=True)
        answers = [answer(i) for i in range(TUNINGS)]
        return {"claims_of_a_hundred": 100 * sum(a["claimed"] for a in answers) / TUNINGS, "tunings": TUNINGS,
                "ledgers_of_a_hundred": 100 * sum(a["faster"] > 0 for a in answers) / TUNINGS, "rows": sum(a["rows"] for a in answers)}

    return Workload(name="same_against_same", sentence=f"{TUNINGS} tunings of {BUDGET} s of a job against itself (`redline tune --same {NAMES}`): real blocks on this machine, switches "
                    "that only name the run, each predicted to gain 5 %", variants={"tuner": run}, rounds=1,
                    bars=[Bar("claims_of_a_hundred", "tuner", "tuner", smaller_is_better=True, at_most=5, sentence="tunings that claim a gain"),
                          Bar("ledgers_of_a_hundred", "tuner", "tuner", smaller_is_better=True, at_most=5, sentence="ledgers in which any row reads faster")])
