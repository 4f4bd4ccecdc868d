"""Six 1600 x 900 JPEG of a nuScenes sample to 128 x 352 with lift-splat-shoot's augmentation, labels included, against its DataLoader with Pillow."""
import sys

from frame import Bar, ROOT, Workload

sys.path.insert(0, str(ROOT / "bench/lss"))
import commands  # noqa: E402

SECONDS = 4


def workload(env):
    folder = commands.scenes(env)
    variants = {f"redline_{mode}": [env.redline, "-q", "data", "bench", ROOT / "recipes/lss_swin_nuscenes.yaml", f"model.train_ds.path={folder}", "model.train_ds.synth=null",
                                    "model.nuscenes.ncams=6", "model.train_ds.batch_size=4", "model.monitor.pictures_every_n_steps=0", f"model.train_ds.decode={mode}",
                                    "--workers", 2, "--seconds", SECONDS, "--json"] for mode in ("exact", "fast")}
    peers = {f"torch_{w}": [env.peers_python, ROOT / "bench/lss/peer_data.py", folder, w, 4, SECONDS] for w in (0, 2, 4)}
    best = "|".join(peers)
    return Workload(
        "lss_data", "All six cameras of a sample, resize, crop, flip and rotation drawn anew for each, normalised, with the map of vehicles; batch 4, 2 cores.",
        {**variants, **peers},
        [Bar("samples_per_second", "redline_fast", best, 4.0, sentence="decode: fast"), Bar("samples_per_second", "redline_exact", best, 2.0, sentence="decode: exact")], rounds=3)
