"""`redline chaos` on `redline train` itself: SIGKILLs change nothing. 20 in `make test`, 200 in `make test-slow`."""
import json
import os
import subprocess

REDLINE = os.environ.get("REDLINE", "build/redline")
KILLS = 200 if os.environ.get("REDLINE_SLOW") == "1" else 20

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


def chaos(folder, *words, code=0):
    (folder / "job.yaml").write_text(JOB)
    done = subprocess.run([REDLINE, "--json", "chaos", folder / "job.yaml", "--chaos-dir", folder / "chaos", *words], capture_output=True, text=True)
    assert done.returncode == code, (done.returncode, done.stdout, done.stderr[-2000:])
    return json.loads(done.stdout) if code == 0 else done.stderr


def test_kills_change_nothing(tmp_path):
    answer = chaos(tmp_path, "--kills", str(KILLS))
    assert answer["passed"] and answer["kills"] >= KILLS and answer["unreadable_states"] == 0 and answer["problems"] == []
    assert answer["aimed_kills"] >= KILLS // 4 and answer["states_checked"] >= KILLS
    assert (answer["epochs"], answer["samples"], answer["steps"]) == (3, 1200, 75)
    assert abs(answer["upper_bound"] - 3 / answer["kills"]) < 1e-12
    assert not (tmp_path / "chaos").exists(), "nothing was lost, so nothing is kept"


def test_a_job_that_cannot_run_is_no_proof(tmp_path):
    assert "nothing to compare with" in chaos(tmp_path, "--kills", "1", "trainer.max_steps=0", code=1)
    assert "exists" in chaos(tmp_path, "--kills", "1", code=2)  # the folder of the first try
