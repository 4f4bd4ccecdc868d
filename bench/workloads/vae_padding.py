"""What truncation, dynamic padding and length buckets do to speed, memory and padding; Lightning's padding to max beside its dynamic one."""
import sys

from frame import Bar, ROOT, Workload

sys.path.insert(0, str(ROOT / "bench/vae"))
import commands  # noqa: E402


def workload(env):
    variants, bars = {}, []
    for median in (90, 400):
        steps = (26, 6) if median == 90 else (8, 2)
        base = ["--preset", "quick", "--precision", "32", "--num_workers", "1"]
        for name, words in {"dynamic": [], "max": ["model.train_ds.use_dynamic_padding=false"],
                            "buckets": ["model.train_ds.use_bucketing=true", "model.train_ds.num_buckets=8"],
                            "cut_250": ["--max_sequence_length", "250"]}.items():
            variants[f"redline_{median}_{name}"] = commands.redline(env, median, *base, *words, steps=steps)
        for padding in ("dynamic", "max"):
            variants[f"lightning_{median}_{padding}"] = commands.lightning(
                env, median, "--num_workers", 0, "--padding", padding, steps=steps if padding == "dynamic" else (6, 2))
        bars.append(Bar("sequences_per_second", f"redline_{median}_dynamic", f"redline_{median}_max", 0.95, sentence=f"median length {median}"))
    return Workload("vae_padding", "Truncation, dynamic padding, buckets: speed, memory, padding share.", variants, bars, rounds=3,
                    notes="redline computes real positions only, so padding costs it memory of the batch and nothing else; Lightning computes it.")
