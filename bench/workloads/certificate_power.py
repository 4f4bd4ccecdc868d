"""Certificates of changes that do harm and of changes that do none, from 20 seeds each, on both tasks."""
import os
import sys

from frame import ROOT, Bar, Workload

sys.path.insert(0, str(ROOT / "bench/tuner"))
import certificate_power as power  # noqa: E402


def workload(env):
    repeats = int(os.environ.get("REDLINE_REPEATS", "20"))

    def run():
        found = power.campaign(env.redline, env.work / "certificate_power", repeats)
        result.notes = "\n".join(power.table(found))
        return power.shares(found)

    result = Workload(
        name="certificate_power",
        sentence=f"Each change judged {repeats} times by pairs of runs from other seeds (`redline certify`, margin 5 %). Dropout off and what is harmless are presented as changes of "
                 "numbers or order, which must not learn more either; the rest as changes of the optimisation.",
        variants={"redline": run},
        bars=[Bar("bad_certified_percent", "redline", "redline", smaller_is_better=True, at_most=10, sentence="changes that do harm, certified"),
              Bar("harmless_not_certified_percent", "redline", "redline", smaller_is_better=True, at_most=20, sentence="changes that do none, not certified")],
        rounds=1,
    )
    return result
