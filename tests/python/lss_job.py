"""A Lift-Splat job of a second, with generated scenes, for the tests of its commands."""
import json
import os
import pathlib
import subprocess

ROOT = pathlib.Path(__file__).resolve().parents[2]
REDLINE = os.environ.get("REDLINE", str(ROOT / "build/redline"))


def redline(*words, code=0, timeout=300, **how):
    done = subprocess.run([REDLINE, *map(str, words)], capture_output=True, text=True, timeout=timeout, **how)
    assert done.returncode == code, (words, done.returncode, done.stdout, done.stderr)
    return done


def make_scenes(folder, num=8, validation=3):
    redline("data", "synth", "nuscenes", "--out", folder, "--num", num, "--num_validation", validation, "--seed", 1, "--camera_width", 160, "--camera_height", 90)
    return folder


def make_job(folder, scenes, steps=6):
    """A recipe file in `folder` over `scenes`."""
    path = pathlib.Path(folder) / "job.yaml"
    path.write_text(f"""base: {ROOT}/recipes/lss_small.yaml
name: lss-tiny
model:
  grid: {{xbound: [-32.0, 32.0, 4.0], ybound: [-32.0, 32.0, 4.0], dbound: [4.0, 28.0, 4.0]}}
  image_size: [32, 64]
  cam_channels: 8
  neck_channels: 16
  backbone: {{embed_dim: 8, depths: [1, 1, 1, 1], num_heads: [1, 1, 2, 2]}}
  nuscenes: {{resize_lim: [0.4, 0.5]}}
  monitor: {{pictures_every_n_steps: 3}}
  train_ds: {{path: {scenes}, synth: null, num_workers: 1, batch_size: 2}}
  validation_ds: {{path: {scenes}, synth: null, num_workers: 0, batch_size: 2}}
  optim: {{sched: null, base_batch_size: 2}}
trainer: {{max_iters: {steps}, val_check_interval: 3, log_every_n_steps: 1, intra_op_threads: 1, enable_progress_bar: false}}
""")
    return path


def metrics(run):
    """{name: [(step, value)]}"""
    found = {}
    for line in (pathlib.Path(run) / "metrics.jsonl").read_text().splitlines()[1:]:
        row = json.loads(line)
        found.setdefault(row["name"], []).append((row["step"], row["value"]))
    return found
