"""The third guide's quick settings, redline against PyTorch Lightning with the same model on the same rows."""
import sys

from frame import Bar, ROOT, Workload

sys.path.insert(0, str(ROOT / "bench/vae"))
import commands  # noqa: E402

LIGHTNING = "--batch_size 4 --num_workers 8 --gradient_accumulation_steps 2 --max_sequence_length 1000 --update_frequency 200".split()


def workload(env):
    variants, bars = {}, []
    for median in (90, 400):
        variants[f"redline_{median}"] = commands.redline(env, median, "--preset", "quick", "--precision", "32")
        variants[f"lightning_{median}"] = commands.lightning(env, median, *LIGHTNING)
        variants[f"lightning_bf16_{median}"] = commands.lightning(env, median, *LIGHTNING, "--precision", "bf16-mixed")
        bars.append(Bar("sequences_per_second", f"redline_{median}", f"lightning_{median}|lightning_bf16_{median}", 2.0,
                        sentence=f"median length {median}"))
    return Workload(
        "vae_quick", "d_model 256, 4 + 4 layers, 8 heads, latent 32, vocabulary 1,000; batch 4 x 2, 8 workers, dynamic padding, monitor every 200 "
        "steps, length at most 1,000.", variants, bars,
        notes="Precision: what is faster for each (32-true here). Both read the same Parquet rows in the same order; validation is off on both sides.")
