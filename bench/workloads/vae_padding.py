"""What truncation, dynamic padding and length buckets do to speed, memory and padding."""
import sys

from frame import Bar, ROOT, Workload

sys.path.insert(0, str(ROOT / "bench/vae"))
import commands  # noqa: E402


def workload(env):
    variants, bars = {}, []
    for median in (90, 400):
        steps = (14, 2) if median == 90 else (5, 1)
        base = ["--preset", "quick", "--precision", "32", "--num_workers", "1"]
        for name, words in {"dynamic": [], "max": ["model.train_ds.use_dynamic_padding=false"],
                            "buckets": ["model.train_ds.use_bucketing=true", "model.train_ds.num_buckets=8"],
                            "cut_250": ["--max_sequence_length", "250"]}.items():
            variants[f"redline_{median}_{name}"] = commands.redline(env, median, *base, *words, steps=steps)
        bars.append(Bar("sequences_per_second", f"redline_{median}_dynamic", f"redline_{median}_max", 0.95, sentence=f"median length {median}"))
    return Workload("vae_padding", "Truncation, dynamic padding, buckets: speed, memory, padding share.", variants, bars, rounds=3,
                    notes="redline computes real positions only, so padding costs it the batch's own memory and nothing else; what it costs Lightning is in vae_peer_settings.")
