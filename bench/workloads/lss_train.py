"""Lift-Splat-Shoot end to end from 1600 x 900 JPEG, five drawn cameras, fp32: redline against lift-splat-shoot's loop and DataLoader with the Swin backbone."""
import sys

from frame import Bar, ROOT, Workload

sys.path.insert(0, str(ROOT / "bench/lss"))
import commands  # noqa: E402


def workload(env):
    variants, bars = {}, []
    for size, steps, warm_up in (("small", 26, 6), ("swin_t", 4, 1)):
        for mode in ("exact", "fast"):
            variants[f"redline_{size}_{mode}"] = commands.redline(env, size, steps, warm_up, f"model.train_ds.decode={mode}", "model.train_ds.num_workers=2")
        for workers in (0, 2):
            variants[f"torch_{size}_{workers}"] = commands.peer(env, size, steps, warm_up, workers)
        best = f"torch_{size}_0|torch_{size}_2"
        bars += [Bar("samples_per_second", f"redline_{size}_{mode}", best, 2.0, sentence=f"{size}, decode: {mode}") for mode in ("exact", "fast")]
    return Workload("lss_train", "Batch 2 of five cameras, AdamW, gradient norm of 5; small is the fixture's size (64 x 192, 48 x 48 cells), swin_t Swin-T at 128 x 352.",
                    variants, bars, rounds=2, notes="The peer's best number of workers counts.")
