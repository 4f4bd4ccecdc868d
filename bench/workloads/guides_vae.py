"""The third guide's table, claim by claim: each switch alone against the guide's starting point, on redline, median length 90."""
import sys

from frame import Bar, ROOT, Workload

sys.path.insert(0, str(ROOT / "bench/vae"))
import commands  # noqa: E402

START = ("--batch_size 1 --num_workers 2 --gradient_accumulation_steps 1 --precision 32 model.monitor.update_frequency=20 "
         "model.monitor.plot_frequency=200 model.monitor.window_size=100").split()
ALL = "--preset quick --precision 32".split()
STEPS = (120, 24)   # of one sequence each; five looks fall into the timed part. The others time the same rows where they can.


def workload(env):
    changes = {
        "batch_4": (["--batch_size", "4"], (30, 6)),
        "workers_8": (["--num_workers", "8"], STEPS),
        "bf16": (["--precision", "bf16-mixed"], STEPS),
        "fp16": (["--precision", "16-mixed", "trainer.precision_strict=true"], (12, 4)),
        "accumulate_2": (["--gradient_accumulation_steps", "2"], (60, 12)),
        "monitor_100": (["model.monitor.update_frequency=100", "model.monitor.plot_frequency=1000", "model.monitor.window_size=50"], STEPS),
        "length_100": (["--max_sequence_length", "100"], STEPS),
    }
    variants = {"start": commands.redline(env, 90, *START, steps=STEPS)}
    variants |= {name: commands.redline(env, 90, *START, *words, steps=steps) for name, (words, steps) in changes.items()}
    variants["all"] = commands.redline(env, 90, *ALL, steps=(15, 3))

    def claim(name, variant, figure="tokens_per_second", sentence=""):
        return Bar(figure, variant, "start", claim=name, sentence=sentence)

    memory = [Bar("peak_tensor_bytes", variant, "start", claim=f"memory_{variant}", sentence="memory")
              for variant in ("batch_4", "workers_8", "bf16", "accumulate_2", "monitor_100", "length_100")]
    return Workload(
        "guides_vae", "Each of the guide's switches alone against its starting point: batch 1, 2 workers, fp32, no accumulation, monitor 20/200/100.",
        variants,
        [claim("batch_1_to_4", "batch_4"), claim("workers_2_to_8", "workers_8"), claim("precision_16_mixed", "fp16", sentence="fp16 as asked, until an overflow makes the guard go on in bf16"),
         claim("precision_bf16_mixed", "bf16"), claim("accumulation", "accumulate_2"), claim("monitoring", "monitor_100"),
         claim("shorter_sequences", "length_100", "sequences_per_second", "at most 100 instead of 1,000"), claim("all", "all"), *memory],
        rounds=5,
        notes="redline has no compiled step; torch.compile in PyTorch Lightning is in vae_peer_settings.")
