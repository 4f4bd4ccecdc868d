"""What the first hour's comforts cost: the list of a thousand runs, and loggers of other tools beside steps of 10 ms."""
import json
import shutil
import statistics
import subprocess
import sys
import time

import numpy

from frame import ROOT, Bar, Workload

RUNS, STEPS = 1000, 1000
JOB = """
base: {root}/recipes/sequence_vae.yaml
name: first-hour
model:
  d_model: 64
  n_heads: 4
  d_ff: 256
  n_encoder_layers: 1
  n_decoder_layers: 1
  max_sequence_length: 64
  monitor: {{update_frequency: 1000000}}
  train_ds: {{batch_size: 8, num_workers: 0, synth: {{kind: sequences, num: 512, seed: 1, min_length: 64, max_length: 64, median_length: 64}}}}
  validation_ds: {{num_workers: 0}}
trainer: {{accumulate_grad_batches: 1, precision: 32-true, max_steps: {steps}, val_check_interval: 1000000, log_every_n_steps: 10}}
exp_manager: {{create_checkpoint_callback: false}}
"""
LOGGERS = ["exp_manager.create_mlflow_logger=true", "exp_manager.mlflow_logger_kwargs={tracking_uri: mlruns}"]


def workload(env):
    sys.path[:0] = [str(ROOT / "tests/python"), str(ROOT / "bench")]
    import run_records
    from neighbour import HEADER, ROW

    folder = env.work / "first_hour"

    def list_runs():
        runs = folder / "runs"
        if not (runs / f"run-{RUNS - 1}").exists():
            shutil.rmtree(runs, ignore_errors=True)
            step = {"wait": 1.0, "forward": 20.0, "backward": 40.0, "optimiser": 3.0}
            first = run_records.make_run(runs / "run-0", step, steps=2000)
            for i in range(1, RUNS):
                shutil.copytree(first, runs / f"run-{i}")
        seconds = []
        for _ in range(5):
            begin = time.monotonic()
            done = subprocess.run([str(env.redline), "--json", "runs", str(runs)], check=True, capture_output=True, text=True)
            seconds.append(time.monotonic() - begin)
        assert len(json.loads(done.stdout)["runs"]) == RUNS
        return {"runs_seconds": statistics.median(seconds)}

    def steps_milliseconds(words):
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "job.yaml").write_text(JOB.format(root=ROOT, steps=STEPS))
        place = folder / "run"
        shutil.rmtree(place, ignore_errors=True)
        subprocess.run([str(env.redline), "-q", "train", "job.yaml", "--run-dir", "run", "--new-run", *words], check=True, capture_output=True, cwd=folder)
        data = (place / "steps.bin").read_bytes()[HEADER:]
        rows = numpy.frombuffer(data[:len(data) // ROW.itemsize * ROW.itemsize], ROW)
        # A mean, since a log line is in every tenth step only and a median would not see it; the slowest fiftieth is the machine's.
        steps = numpy.sort(rows["wall"][50:]) * 1e-6
        return {"mean_milliseconds": float(numpy.mean(steps[:len(steps) * 49 // 50])), "median_milliseconds": float(numpy.median(steps))}

    return Workload(
        name="first_hour",
        sentence=f"`redline runs` over {RUNS:,} runs of 2,000 steps; {STEPS} steps of a small VAE with and without loggers (MLflow's file store, written by a child), a log line every tenth step, in turns",
        variants={"list": list_runs, "plain": lambda: steps_milliseconds([]), "loggers": lambda: steps_milliseconds(LOGGERS)},
        bars=[Bar("runs_seconds", "list", "list", smaller_is_better=True, at_most=1.0, sentence="seconds"),
              Bar("mean_milliseconds", "loggers", "plain", smaller_is_better=True, at_least=0.995, sentence="mean step, without over with loggers")],
        rounds=6)
