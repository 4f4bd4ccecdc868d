"""Lift-Splat-Shoot with Swin, forward + backward at fixed input: redline against the PyTorch peer, at the fixture's size and with Swin-T at 128 x 352."""
from frame import Bar, ROOT, Workload


def workload(env):
    peer = [env.peers_python, ROOT / "bench/lss/peer_step.py"]
    bench = env.build / "bench/lss_step_bench"
    variants = {}
    for size, steps in (("small", 9), ("swin_t", 2)):
        variants[f"redline_{size}"] = [bench, size, 2, steps, 2]
        variants[f"torch_{size}"] = [*peer, size, 2, steps, 2]
    return Workload(
        "lss_step", "Forward + backward alone, batch 2 of six cameras, fp32, 2 threads; no stochastic depth.", variants,
        [Bar("step_ms", f"redline_{size}", f"torch_{size}", 1.8, smaller_is_better=True, sentence=size) for size in ("small", "swin_t")]
        + [Bar("gemm_over_made", "redline_swin_t", "redline_swin_t", at_most=2.0, sentence="measured rate of products over those really made, Swin-T")], rounds=4)
