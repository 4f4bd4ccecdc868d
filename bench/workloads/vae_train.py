"""The third guide's training, redline against PyTorch Lightning with the same model on the same rows: the guide's quick settings, and each side's best."""
import sys

from frame import Bar, ROOT, Workload

sys.path.insert(0, str(ROOT / "bench/vae"))
import commands  # noqa: E402

QUICK = "--batch_size 4 --gradient_accumulation_steps 2 --max_sequence_length 1000 --update_frequency 200 --padding dynamic".split()
BEST = "--batch_size 8 --gradient_accumulation_steps 1 --num_workers 1 --precision 32 --fast_detection".split()


def workload(env):
    variants, bars = {}, []
    for median in (90, 400):
        variants[f"redline_quick_{median}"] = commands.redline(env, median, "--preset", "quick", "--precision", "32")
        variants[f"redline_best_{median}"] = commands.redline(env, median, *BEST)
        for workers in (0, 8):
            variants[f"lightning_workers_{workers}_{median}"] = commands.lightning(env, median, *QUICK, "--num_workers", workers)
        bars += [Bar("sequences_per_second", f"redline_quick_{median}", f"lightning_workers_8_{median}", 2.0,
                     sentence=f"quick settings, median length {median}"),
                 Bar("sequences_per_second", f"redline_best_{median}", f"lightning_workers_0_{median}|lightning_workers_8_{median}", 1.5,
                     sentence=f"best settings, median length {median}")]
    return Workload(
        "vae_train", "d_model 256, 4 + 4 layers, 8 heads, latent 32, vocabulary 1,000; 8 sequences an optimiser step; quick is batch 4 x 2, 8 workers, "
        "dynamic padding, monitor every 200 steps, length at most 1,000.", variants, bars,
        notes="Both read the same Parquet rows in the same order; validation is off on both sides. Precision is what is faster for each: 32-true here. "
        "Why Lightning's best is eager with dynamic padding: vae_peer_settings.")
