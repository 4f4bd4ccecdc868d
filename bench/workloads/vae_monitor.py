"""What the posterior monitor costs at the guide's cadence (every 100 steps, pictures every 1,000, window 50), and Lightning's callback beside it."""
import sys

from frame import Bar, ROOT, Workload

sys.path.insert(0, str(ROOT / "bench/vae"))
import commands  # noqa: E402

STEPS = (202, 2)


def workload(env):
    quick = "--batch_size 4 --gradient_accumulation_steps 1 --num_workers 1 --precision 32".split()
    peer = "--batch_size 4 --gradient_accumulation_steps 1 --num_workers 0".split()
    return Workload(
        "vae_monitor", "200 steps of batch 4, median length 90, of which two are looks.",
        {"redline": commands.redline(env, 90, *quick, steps=STEPS),
         # Ten times the pictures: one look of two also draws, which the guide's cadence does once in 1,000 steps.
         "redline_pictures": commands.redline(env, 90, *quick, "model.monitor.plot_frequency=200", steps=STEPS),
         "redline_unoptimised": commands.redline(env, 90, *quick, "model.monitor.update_frequency=20", "model.monitor.plot_frequency=200",
                                                 "model.monitor.window_size=100", steps=STEPS),
         "redline_off": commands.redline(env, 90, *quick, "--disable_metrics_monitoring", steps=STEPS),
         "lightning": commands.lightning(env, 90, *peer, "--update_frequency", 100, steps=(102, 2))},
        [Bar("monitor_share", "redline_pictures", "redline_pictures", at_most=0.02, sentence="share of the step, pictures five times as often as the guide"),
         Bar("monitor_share", "redline", "lightning", 1.0, smaller_is_better=True, sentence="against the callback in Python")],
        notes="monitor_share is the monitor's own phase over the wall time of the steps. The Python callback draws no pictures.", rounds=3)
