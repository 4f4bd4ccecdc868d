"""The tuner against an exhaustive grid of the vae reference job, and its promises against fresh runs."""
import sys

from frame import ROOT

sys.path.insert(0, str(ROOT / "bench/tuner"))
from against_the_grid import against_the_grid  # noqa: E402


def workload(env):
    return against_the_grid(env, "vae")
