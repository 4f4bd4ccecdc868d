"""Whole tunings and whole `redline train` runs of small jobs: what the pages promises, same_against_same and predictions are made of.

A job is a sequence VAE that a step takes milliseconds of, so that forty tunings with two whole runs each fit into forty minutes. Its gain is
the micro-batch, which is proved step by step and needs no consent.
"""
import contextlib
import json
import os
import pathlib
import subprocess
import sys

import numpy

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "bench"))
from neighbour import HEADER, ROW  # noqa: E402

JOB = """
base: {root}/recipes/sequence_vae.yaml
name: whole-runs
model:
  d_model: {d_model}
  n_heads: 4
  d_ff: {d_ff}
  n_encoder_layers: 1
  n_decoder_layers: 1
  max_sequence_length: 128
  train_ds: {{batch_size: {batch}, num_workers: 0, use_bucketing: false, pin_memory: false}}
  validation_ds: {{num_workers: 0}}
trainer: {{accumulate_grad_batches: {accumulate}, precision: 32-true, max_steps: {steps}, val_check_interval: 1000000}}
exp_manager: {{create_checkpoint_callback: false}}
"""
SIZES = [{"d_model": 48, "d_ff": 192, "batch": 2, "accumulate": 8}, {"d_model": 64, "d_ff": 256, "batch": 1, "accumulate": 16},
         {"d_model": 96, "d_ff": 384, "batch": 4, "accumulate": 4}, {"d_model": 64, "d_ff": 128, "batch": 2, "accumulate": 4}]


def write_job(folder, size, steps=400):
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "job.yaml").write_text(JOB.format(root=ROOT, steps=steps, **SIZES[size % len(SIZES)]))
    return folder


def call(redline, folder, *words):
    done = subprocess.run([str(redline), *map(str, words)], capture_output=True, text=True, cwd=folder, timeout=600)
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(map(str, words[:3]))} failed with {done.returncode}: {done.stderr[-1500:]}")
    return done.stdout


def tune(redline, folder, seconds, *words):
    """The card, and the tuned recipe as tuned.yaml."""
    return json.loads(call(redline, folder, "--json", "tune", "job.yaml", "--fresh", "--budget", f"{seconds}s", "--card", "card.json", "--out", "tuned.yaml", *words))["card"]


def same_against_same(redline, folder, seconds, names=10):
    """Whether a tuning whose switches are names of the run claimed a gain, and how many of its rows did."""
    card = tune(redline, folder, seconds, "--same", names)
    verdicts = [entry["verdict"] for entry in card["ledger"]["entries"]]
    return {"claimed": bool(card["values"]), "faster": verdicts.count("faster"), "rows": len(verdicts)}


def train_seconds(redline, folder, recipe, run, warm_up=20):
    """Seconds per step of a whole run, past its first steps; from its own record, so that building the process does not count."""
    call(redline, folder, "-q", "train", recipe, "--run-dir", run, "--new-run")
    record = sorted((folder / run).rglob("steps.bin"), key=lambda path: path.stat().st_mtime)[-1]
    data = record.read_bytes()[HEADER:]
    rows = numpy.frombuffer(data[:len(data) // ROW.itemsize * ROW.itemsize], ROW)
    rows = rows[rows["step"] > warm_up]
    return float((rows["begin"][-1] + rows["wall"][-1] - rows["begin"][0]) * 1e-9 / len(rows))


@contextlib.contextmanager
def busy_neighbour(wanted):
    """A process that computes without end on one core of this machine, while the block lasts."""
    if not wanted:
        yield
        return
    process = subprocess.Popen([sys.executable, "-c", "while True: pass"])
    try:
        os.sched_setaffinity(process.pid, {sorted(os.sched_getaffinity(0))[-1]})
        yield
    finally:
        process.kill()
        process.wait()
