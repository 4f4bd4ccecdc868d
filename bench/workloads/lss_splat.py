"""The splat alone, forward + backward with the softmax of depths and the sort: batch 2, six cameras, 128 x 352, 41 depths, 64 channels, 200 x 200 cells."""
from frame import Bar, ROOT, Workload


def workload(env):
    return Workload(
        "lss_splat", "Depths and features to the grid and back, against the reference's sorted running sums (eager PyTorch).",
        {"redline": [env.build / "bench/lss_step_bench", "splat", 2, 9, 2], "torch": [env.peers_python, ROOT / "bench/lss/peer_step.py", "splat", 2, 5, 2]},
        [Bar("step_ms", "redline", "torch", 5.0, smaller_is_better=True)])
