"""Forecasts of `redline scale` against what happens over limited links between network namespaces. Needs root."""
import os
import pathlib
import sys

from frame import ROOT, Bar, Workload

sys.path.insert(0, str(ROOT / "bench/ranks"))
import scale_validation  # noqa: E402


def workload(env):
    # REDLINE_SCALE_PARTS=record,real and then =replay: in pieces, the rows of each kept.
    parts = os.environ.get("REDLINE_SCALE_PARTS", "record,real,replay").split(",")

    def run():
        rows = scale_validation.campaign(env.redline, pathlib.Path(env.work) / "ranks_scale", parts, 8)
        result.notes = scale_validation.page(rows)
        return scale_validation.figures(rows)

    result = Workload(
        name="ranks_scale",
        sentence="A sequence VAE with 19 MB of gradients, recorded with two ranks of one thread over loopback; then two ranks with real compute, and 2, 4 and 8 that replay the "
                 "recorded steps with timed waits, over links limited by tbf or through a relay that delays.",
        variants={"redline": run},
        bars=[Bar("largest_error_percent", "redline", "redline", smaller_is_better=True, at_most=15, sentence="forecast against measurement, the worst of all"),
              Bar("outside_interval_percent", "redline", "redline", smaller_is_better=True, at_most=10, sentence="measurements outside of the 90 % interval"),
              Bar("exposed_percent_at_1_gbit", "redline", "redline", smaller_is_better=True, at_most=50, sentence="of the gradients' time on a 1 Gbit/s link, real compute")],
        rounds=1,
    )
    return result
