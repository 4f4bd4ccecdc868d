"""redline_train.py REDLINE FOLDER STEPS WARM_UP [override ...] [--recipe=NAME]: `redline train recipes/lss_swin_nuscenes.yaml` (or NAME) on FOLDER; prints the figures of its record
after the warm-up steps as one JSON line. No validation and no checkpoint, as in peer_train.py."""
import json
import pathlib
import subprocess
import sys
import tempfile

import numpy

ROOT = pathlib.Path(__file__).resolve().parents[2]
PHASES = "wait copy forward backward reduce optimiser log monitor validate checkpoint other".split()
ROW = numpy.dtype([("step", "i8"), ("epoch", "i8"), ("begin", "i8"), ("wall", "i8"), ("phase", "i8", 11), ("stage", "i8", 4), ("samples", "i4"),
                   ("micro", "i4"), ("items", "i8"), ("padded", "i8"), ("live", "i8"), ("peak", "i8"), ("rss", "i8"), ("rest", "V32")])


def main(redline, folder, steps, warm_up, *overrides):
    steps, warm_up = int(steps), int(warm_up)
    recipe = next((word[9:] for word in overrides if word.startswith("--recipe=")), "lss_swin_nuscenes")
    overrides = [word for word in overrides if not word.startswith("--recipe=")]
    with tempfile.TemporaryDirectory() as work:
        command = [redline, "-q", "train", ROOT / f"recipes/{recipe}.yaml", f"model.train_ds.path={folder}", "model.train_ds.synth=null",
                   "~model.validation_ds", "model.monitor.pictures_every_n_steps=0", "model.optim.scale_lr=none", f"trainer.max_steps={steps}",
                   f"exp_manager.exp_dir={work}", "exp_manager.create_checkpoint_callback=false", *overrides]
        done = subprocess.run([str(word) for word in command], capture_output=True, text=True)
        if done.returncode != 0:
            sys.exit(f"{' '.join(map(str, command))} failed with {done.returncode}:\n{done.stderr[-2000:]}")
        [record] = pathlib.Path(work).rglob("steps.bin")
        data = record.read_bytes()
    rows = numpy.frombuffer(data[64:64 + (len(data) - 64) // ROW.itemsize * ROW.itemsize], ROW)
    timed = rows[rows["step"] > warm_up]
    seconds = (timed["begin"][-1] + timed["wall"][-1] - timed["begin"][0]) * 1e-9
    figures = {"samples_per_second": float(timed["samples"].sum() / seconds), "iterations_per_second": len(timed) / seconds,
               "peak_rss_bytes": int(rows["rss"].max()), "peak_tensor_bytes": int(rows["peak"].max())}
    figures |= {f"{name}_share": float(timed["phase"][:, i].sum() * 1e-9 / seconds) for i, name in enumerate(PHASES)}
    print(json.dumps(figures))


if __name__ == "__main__":
    main(*sys.argv[1:])
