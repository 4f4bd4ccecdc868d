"""JPEG 384 x 384 to 224 x 224, batch 32, normalised, against PyTorch's DataLoader with Pillow."""
import sys

from frame import Bar, ROOT, Workload

sys.path.insert(0, str(ROOT / "bench/data"))
import prepare  # noqa: E402


def workload(env):
    folder = prepare.trained_on(env, "images", prepare.pictures(env))
    keys = f"path: {folder}\nbatch_size: 32\nshuffle: true\nimage_size: 224\nprefetch_factor: 1\n"
    variants = {f"redline_{mode}": prepare.redline(env, f"data_jpeg_{mode}", keys + f"decode: {mode}\n", "images", 2) for mode in ("exact", "fast")}
    peers = {f"torch_{w}": prepare.peer(env, "torch_jpeg.py", folder, w, 32) for w in (0, 1, 2, 4)}
    best = "|".join(peers)
    return Workload(
        "data_jpeg", "JPEG 384 to 224, batch 32, float32 normalised.", {**variants, **peers},
        [Bar("samples_per_second", "redline_fast", best, 2.5, sentence="decode: fast"),
         Bar("samples_per_second", "redline_exact", best, 1.5, sentence="decode: exact"),
         Bar("peak_pss_bytes", "redline_exact", best, 2.0, smaller_is_better=True, chosen_by="samples_per_second",
             sentence="peak PSS of the process tree, the peer with its fastest worker count"),
         Bar("first_batch_seconds", "redline_exact", best, 2.0, smaller_is_better=True, sentence="from loader construction")])
