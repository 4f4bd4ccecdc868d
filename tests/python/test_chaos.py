"""`redline chaos` on `redline train` itself, on three tasks: SIGKILLs change nothing. 25 in `make test`, 1,000 in `make test-slow`."""
import json
import os
import pathlib
import subprocess

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
REDLINE = os.environ.get("REDLINE", str(ROOT / "build/redline"))
SLOW = os.environ.get("REDLINE_SLOW") == "1"

JOB = """
name: tiny
task: sequence_vae
model:
  {vocab_size: 50, d_model: 32, n_heads: 2, d_ff: 64, n_encoder_layers: 1, n_decoder_layers: 1, latent_dim: 4, dropout: 0.1, max_sequence_length: 40,
   train_ds: {synth: {kind: sequences, num: 400, seed: 1, vocab_size: 50, median_length: 15, max_length: 40}, columns: [tokens], batch_size: 8,
              num_workers: 1, shuffle: true, max_sequence_length: 40},
   validation_ds: {synth: {kind: sequences, num: 64, seed: 2, vocab_size: 50, median_length: 15, max_length: 40}, columns: [tokens], batch_size: 16,
                   num_workers: 1, max_sequence_length: 40},
   optim: {name: adamw, lr: 1.0e-3, sched: {name: CosineAnnealing, warmup_steps: 5, min_lr: 1.0e-5}}}
trainer: {max_epochs: 3, log_every_n_steps: 10, intra_op_threads: 1, enable_progress_bar: false, accumulate_grad_batches: 2}
exp_manager: {checkpoint_callback_params: {every_n_train_steps: 9}}
"""


# Accumulation, buckets, noise drawn beside each clip, averaged weights and bf16, as small as the task allows.
SPEECH = f"""
base: {ROOT}/recipes/nest_fast-conformer_small.yaml
name: tiny-speech
model:
  num_classes: 32
  longest_clip: 2.5
  encoder: {{d_model: 32, n_layers: 1, n_heads: 2, subsampling_conv_channels: 16}}
  train_ds: {{synth: {{kind: speech, num: 32, num_validation: 4, num_noise: 4, seed: 3, median_seconds: 1.5, min_seconds: 1.1, max_seconds: 2.5}}, batch_size: 2,
             max_duration: 2.5, num_buckets: 2}}
  validation_ds: {{synth: {{kind: speech, num: 32, num_validation: 4, num_noise: 4, seed: 3, median_seconds: 1.5, min_seconds: 1.1, max_seconds: 2.5}},
                  batch_size: 2, max_duration: 2.5}}
trainer: {{max_epochs: 3, max_steps: -1, val_check_interval: 5, log_every_n_steps: 4, intra_op_threads: 1, enable_progress_bar: false, precision: bf16-mixed, accumulate_grad_batches: 2}}
exp_manager: {{ema: {{enable: true}}, checkpoint_callback_params: {{every_n_train_steps: 4}}}}
"""

# Pictures: augmentation drawn for each sample, mixing within groups, stochastic depth, averaged weights, the embeddings a monitor keeps.
CONVNEXT = f"""
base: {ROOT}/recipes/convnext_small.yaml
name: tiny-convnext
model:
  depths: [1, 1]
  dims: [8, 16]
  image_size: 32
  drop_path_rate: 0.2
  train_ds: {{synth: {{kind: images, num: 96, num_validation: 24, seed: 1, num_classes: 6, width: 40, height: 40}}, image_crop: random_resized, batch_size: 8, num_workers: 1,
             augment: {{color_jitter: [0.3], reprob: 0.3, mixup: 0.5, mixup_prob: 0.5}}}}
  validation_ds: {{synth: {{kind: images, num: 96, num_validation: 24, seed: 1, num_classes: 6, width: 40, height: 40}}, batch_size: 12}}
  monitor: {{separation_every_n_epochs: 1}}
trainer: {{max_epochs: 3, log_every_n_steps: 4, intra_op_threads: 1, enable_progress_bar: false}}
exp_manager: {{ema: {{enable: true}}, checkpoint_callback_params: {{every_n_train_steps: 5}}}}
"""

# task: the job, kills in make test and in make test-slow, epochs, samples and steps of one run
TASKS = {"sequence_vae": (JOB, 20, 500, (3, 1200, 75)), "speech_ssl": (SPEECH, 5, 500, (3, 96, 24)), "convnext": (CONVNEXT, 5, 300, (3, 288, 36))}


def chaos(folder, job, *words, code=0):
    (folder / "job.yaml").write_text(job)
    done = subprocess.run([REDLINE, "--json", "chaos", folder / "job.yaml", "--chaos-dir", folder / "chaos", *words], capture_output=True, text=True, cwd=folder)
    assert done.returncode == code, (done.returncode, done.stdout, done.stderr[-2000:])
    return json.loads(done.stdout) if code == 0 else done.stderr


@pytest.mark.parametrize("task", TASKS)
def test_kills_change_nothing(tmp_path, task):
    job, few, many, size = TASKS[task]
    kills = many if SLOW else few
    answer = chaos(tmp_path, job, "--kills", str(kills))
    print(json.dumps(answer))
    assert answer["passed"] and answer["kills"] >= kills and answer["unreadable_states"] == 0 and answer["problems"] == []
    assert answer["aimed_kills"] >= kills // 5 and answer["states_checked"] >= kills
    assert (answer["epochs"], answer["samples"], answer["steps"]) == size
    assert abs(answer["upper_bound"] - 3 / answer["kills"]) < 1e-12
    assert not (tmp_path / "chaos").exists(), "nothing was lost, so nothing is kept"


def test_a_job_that_cannot_run_is_no_proof(tmp_path):
    assert "nothing to compare with" in chaos(tmp_path, JOB, "--kills", "1", "trainer.max_steps=0", code=2)
    assert "exists" in chaos(tmp_path, JOB, "--kills", "1", code=2)  # the folder of the first try
