"""A ConvNeXt trained from JPEG files of a photograph's size, redline against timm in a plain PyTorch loop with DataLoader, Pillow and torchvision."""
import sys

from frame import Bar, ROOT, Workload

sys.path.insert(0, str(ROOT / "bench/speech"))
sys.path.insert(0, str(ROOT / "bench/data"))
import jobs  # noqa: E402
import prepare  # noqa: E402

STEPS = 12
# The mean size of ImageNet's pictures is about that; 10 classes in folders.
SIZE = ["--width", "500", "--height", "375"]


def workload(env):
    folder = prepare.once(env.work / "photographs", [env.redline, "data", "synth", "images", "--out", "@OUT@", "--num", "2000", "--num_validation", "0", "--seed", "1",
                                                     "--num_classes", "10", *SIZE]) / "train"
    ours = {f"redline_{decode}": [sys.executable, ROOT / "bench/convnext/redline_train.py", env.redline, "convnext.yaml", STEPS + 5, 5, "model.train_ds.synth=null",
                                  f"model.train_ds.path={folder}", "model.train_ds.batch_size=32", "model.train_ds.num_workers=2", "model.train_ds.prefetch_factor=2",
                                  "model.optim.scale_lr=none", f"model.train_ds.decode={decode}"]
            for decode in ("exact", "fast")}
    timm = {f"timm_{mode}_{workers}": jobs.Server(env, "../convnext/timm_train.py", folder, "--mode", mode, "--workers", workers, warm_up=2, ask=STEPS)
            for mode in ("eager", "channels_last", "compile") for workers in (1, 2)}
    best = "|".join(timm)
    return Workload(
        "convnext_train", "JPEG 500 x 375 from files, random crop to 64², flip, 32 a step, ConvNeXt of dims 64 128 256 512 and 4 blocks a stage (the guide's), AdamW, fp32, 2 cores.",
        {**ours, **timm},
        [Bar("pictures_per_second", "redline_exact", best, 2.0, sentence="decode: exact (Pillow's pixels)"),
         Bar("pictures_per_second", "redline_fast", best, 2.0, sentence="decode: fast")],
        rounds=5, notes="Peers by mode and worker processes. Both sides: pages of the files in memory, no validation, no checkpoints.")
