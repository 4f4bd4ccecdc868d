"""learns.py REDLINE OUT_FOLDER [STEPS] [SEED ...]: does recipes/lss_small.yaml learn? Trains it with each seed on generated scenes and prints a table of the vehicle
IoU on held-out scenes against predictions that do not look at the pictures: vehicle everywhere, the best one map for all chosen on the training scenes, and the
same chosen on the held-out scenes themselves, which no honest constant reaches. Run in the peers' environment (labels are nuscenes-devkit's and OpenCV's)."""
import json
import pathlib
import subprocess
import sys

import numpy

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from peer_data import Scenes  # noqa: E402

ROOT = pathlib.Path(__file__).resolve().parents[2]
redline, folder = sys.argv[1], pathlib.Path(sys.argv[2])
steps, seeds = (sys.argv[3] if len(sys.argv) > 3 else "400"), sys.argv[4:] or ["11", "12", "13"]


def run(*words):
    return subprocess.run([redline, "-q", *map(str, words)], check=True, capture_output=True, text=True).stdout


def labels(split):
    scenes = Scenes(folder / "scenes", bounds=(-48.0, 48.0, 2.0), split=split)
    return numpy.stack([scenes.label(sample)[0].numpy() for sample in scenes.samples]) > 0.5


def iou(constant, truth):
    return (truth & constant).sum() / (truth | constant).sum()


def best_map(truth):
    """Cells that are occupied at least so often; the threshold with the largest IoU on `truth`."""
    often = truth.mean(0)
    return max((often >= t for t in numpy.unique(often)), key=lambda constant: iou(constant, truth))


if not (folder / "scenes").exists():
    run("data", "synth", "nuscenes", "--out", folder / "scenes", "--num", 256, "--num_validation", 32, "--seed", 1, "--camera_width", 400, "--camera_height", 225)
seen, held_out = labels("mini_train"), labels("mini_val")
constants = {"everywhere": iou(numpy.ones_like(seen[0]), held_out), "map of training scenes": iou(best_map(seen), held_out), "map of held-out scenes": iou(best_map(held_out), held_out)}
print(" | ".join(f"{name} {value:.4f}" for name, value in constants.items()), flush=True)
for seed in seeds:
    where = folder / f"seed-{seed}"
    data = [f"model.{part}.{key}" for part in ("train_ds", "validation_ds") for key in (f"path={folder / 'scenes'}", "synth=null")]
    run("train", ROOT / "recipes/lss_small.yaml", f"seed={seed}", f"runner.max_iters={steps}", *data, "--run-dir", where)
    got = json.loads(run("eval", where, "--json"))["metrics"]
    print(f"| {seed} | {got['val_vehicle_iou']:.4f} | {' | '.join(f"{got['val_vehicle_iou'] / value:.1f}" for value in constants.values())} | {got['val_miou']:.4f} | {got['val_macc']:.4f} | {got['val_aacc']:.4f} |",
          flush=True)
