"""A workload: the tuner against an exhaustive grid of a reference job, and its promises against fresh runs."""
import statistics

from campaign import Campaign
from frame import Bar, Workload


def against_the_grid(env, job):
    campaign = Campaign(env.redline, job, env.work / f"tuner_{job}")
    rounds = {}

    def contender(name):
        def next_round():
            final, tune, grid = campaign.final(), campaign.tune(), campaign.grid()
            i = rounds[name] = rounds.get(name, -1) + 1
            figures = {"speed_over_reference": final["rounds"][i][name]}
            figures["search_seconds"] = tune["seconds"] if name == "tuner" else grid["seconds"]
            if name == "tuner":
                errors = [abs(e) for e in (entry["prediction_error_points"] for entry in tune["answer"]["card"]["ledger"]["entries"]) if e is not None]
                figures["median_prediction_error_points"] = statistics.median(errors)
                if coverage := campaign.coverage_so_far():
                    figures["promises_kept_percent"] = 100 * statistics.mean(r["inside"] for r in coverage)
            return figures
        return next_round

    grid = [f"grid {i}" for i in (1, 2, 3)]
    return Workload(
        name=f"tuner_{job}",
        sentence="Effective batch 16 as 2 x 8, workers 0, no buckets: the tuner's choice and the top three of the grid micro-batch x workers x buckets x threads in fp32, and bf16 at its corners (52 points)",
        variants={name: contender(name) for name in ["tuner", *grid]},
        bars=[Bar("speed_over_reference", "tuner", "|".join(grid), at_least=0.97, sentence="at most 3 % behind the grid's best (see the interval's lower end)"),
              Bar("search_seconds", "tuner", grid[0], at_least=1 / 0.15, smaller_is_better=True, sentence="in at most 15 % of the grid's time")],
        rounds=6,
    )
