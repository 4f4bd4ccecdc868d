"""A workload: the tuner against an exhaustive grid of a reference job, and its promises against fresh runs."""
import math
import random
import statistics

from campaign import Campaign
from frame import Bar, Workload


def bootstrap_means(logs, resamples=5000, seed=1):
    draw = random.Random(seed)
    return sorted(statistics.mean(draw.choices(logs, k=len(logs))) for _ in range(resamples))


def upper_bound(logs):
    """One-sided 95 % bootstrap bound of the mean."""
    means = bootstrap_means(logs)
    return means[int(0.95 * len(means))]


def gain_text(logs):
    means = bootstrap_means(logs)
    low, high = means[int(0.025 * len(means))], means[int(0.975 * len(means))]
    return f"{math.exp(statistics.mean(logs)):.2f} (95 %: {math.exp(low):.2f} to {math.exp(high):.2f})"


def story(final, coverage):
    logs = {name: [math.log(r[name]) for r in final["rounds"]] for name in [*final["contenders"], "reference"]}
    promised = [run["promised"]["high"] / run["promised"]["low"] for run in coverage if "promised" in run]
    lines = [f"The choice, `{final['choice']}`, is {gain_text([-x for x in logs['reference']])} times as fast as the reference.", "",
             "| of the grid | against the choice | setting |", "|---|---|---|"]
    lines += [f"| {name} | {gain_text(logs[name])} | `{text}` |" for name, text in final["contenders"].items()]
    lines += ["", f"{len(coverage)} tunings of {coverage[0]['budget_seconds']:.0f} s made {len(promised)} promises, the others changed nothing; the upper end of a promise is {statistics.median(promised):.2f} "
              "times its lower (median). prediction_error_points: median over the switches that these and the tuner's run had time "
              "to race alone (predictions: how many); the ledgers (bench/tuner/ledgers.py) race them all."]
    return "\n".join(lines)


def against_the_grid(env, job):
    campaign = Campaign(env.redline, job, env.work / f"tuner_{job}")
    round_number = iter(range(1000))

    def next_round():
        final, tune, grid, coverage = campaign.final(), campaign.tune(), campaign.grid(), campaign.coverage()
        workload.notes = story(final, coverage)
        logs = {name: [math.log(r[name]) for r in final["rounds"]] for name in final["contenders"]}
        best = max(logs, key=lambda name: statistics.mean(logs[name]))
        this = final["rounds"][next(round_number) % len(final["rounds"])]
        ledgers = [e["prediction_error_points"] for e in tune["answer"]["card"]["ledger"]["entries"] if e["prediction_error_points"] is not None]
        errors = [abs(e) for e in ledgers + [e for run in coverage for e in run["errors"]]]
        return {"loss_percent": 100 * (this[best] - 1), "loss_bound_percent": 100 * (math.exp(upper_bound(logs[best])) - 1),
                "search_share_percent": 100 * tune["seconds"] / grid["seconds"], "gain_over_reference": 1 / this["reference"],
                "promises": sum("inside" in run for run in coverage), "promises_broken": sum(not run.get("inside", True) for run in coverage),
                "prediction_error_points": statistics.median(errors) if errors else 0.0, "predictions": len(errors)}

    workload = Workload(
        name=f"tuner_{job}",
        sentence="Effective batch 16 as 2 x 8, workers 0, no buckets. The tuner's choice in turns with each of the top three of the grid micro-batch x workers x "
                 f"precision x buckets x threads ({len(campaign.settings())} points); ten promises of fresh tunings, each against a fresh race.",
        variants={"tuner": next_round},
        bars=[Bar("loss_bound_percent", "tuner", "tuner", smaller_is_better=True, at_most=3, sentence="behind the best of the grid's top three, one-sided 95 % bound"),
              Bar("search_share_percent", "tuner", "tuner", smaller_is_better=True, at_most=15, sentence="of the grid's time"),
              Bar("promises_broken", "tuner", "tuner", smaller_is_better=True, at_most=1, sentence="of ten: a fresh race outside the promised interval")],
        rounds=10,
    )
    return workload
