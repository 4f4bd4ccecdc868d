"""Limits hold before anything large is made, and numbers that mean nothing are refused."""
import os
import pathlib
import subprocess

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
REDLINE = os.environ.get("REDLINE", str(ROOT / "build/redline"))
RECIPE = """
task: sequence_vae
name: tiny
model:
  vocab_size: 64
  d_model: 16
  n_heads: 2
  d_ff: 32
  n_encoder_layers: 1
  n_decoder_layers: 1
  latent_dim: 4
  max_sequence_length: 64
  train_ds: &data
    synth: {kind: sequences, num: 40, seed: 1, vocab_size: 64, median_length: 20, max_length: 64}
    columns: [tokens]
    batch_size: 4
    num_workers: 0
    max_sequence_length: 64
    cache_dir: CACHE
  validation_ds:
    synth: {kind: sequences, num: 40, seed: 1, vocab_size: 64, median_length: 20, max_length: 64}
    columns: [tokens]
    batch_size: 4
    num_workers: 0
    max_sequence_length: 64
    cache_dir: CACHE
  optim: {name: adamw, lr: 1.0e-3}
trainer: {max_steps: 2, enable_progress_bar: false, intra_op_threads: 1}
""".replace(" &data", "")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("limits")
    (folder / "job.yaml").write_text(RECIPE.replace("CACHE", str(folder / "cache")))
    return folder


def run(folder, *words, code=0):
    done = subprocess.run([REDLINE, *words], capture_output=True, text=True, cwd=folder, timeout=120)
    assert done.returncode == code, (words, done.returncode, done.stdout[-2000:], done.stderr[-2000:])
    return done


HUGE = ["model.d_model=4096", "model.d_ff=32768", "model.n_encoder_layers=2", "model.n_decoder_layers=2"]  # about 5 GB of weights


@pytest.mark.parametrize("words", [["train", "job.yaml", "--run-dir", "huge"], ["train", "job.yaml", "--dry-run"],
                                   ["tune", "job.yaml", "--budget", "12s"], ["data", "stats", "job.yaml"], ["race", "job.yaml", "--with", "seed=1"]])
def test_a_model_over_the_limit_is_never_made(folder, words):
    process = subprocess.Popen([REDLINE, *words, *HUGE, "trainer.memory_limit=200MiB"], cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    said = process.stderr.read()
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    assert process.returncode == 6, said
    assert "does not fit in memory" in said and "200 MiB" in said and "trainer.memory_limit" in said, said
    assert usage.ru_maxrss / 1024 < 900, usage.ru_maxrss
    assert not (folder / "huge").exists()


def test_a_run_is_evaluated_within_its_limit(folder):
    run(folder, "train", "job.yaml", "--run-dir", "small")
    run(folder, "eval", "small")
    for words in (["eval", "small"], ["predict", "small", "cache", "--out", "p.safetensors"], ["sample", "small"]):
        said = run(folder, *words, *HUGE, "trainer.memory_limit=200MiB", code=6).stderr
        assert "does not fit in memory" in said, said


@pytest.mark.parametrize("word, said", [
    ("model.train_ds.batch_size=9223372036854775807", "batch_size"),
    ("model.train_ds.micro_batch_size=9223372036854775807", "micro_batch_size"),
    ("trainer.accumulate_grad_batches=9223372036854775807", "accumulate_grad_batches"),
    ("trainer.max_epochs=9223372036854775807", "max_epochs"),
    ("trainer.max_steps=9223372036854775807", "max_steps"),
    ("trainer.max_time=0s", "trainer.max_time is '0s'; expected a time above 0"),
    ("trainer.max_time=00:00:00:00", "null for no limit"),
    ("trainer.memory_limit=0", "trainer.memory_limit is '0'; expected a size above 0"),
    ("trainer.memory_limit=17179869184GiB", "trainer.memory_limit"),
])
def test_numbers_that_mean_nothing_are_refused(folder, word, said):
    done = run(folder, "train", "job.yaml", word, "--run-dir", "refused", code=2)
    assert said in done.stderr and not (folder / "refused").exists(), done.stderr


def test_none_is_null(folder):
    run(folder, "train", "job.yaml", "trainer.max_time=null", "trainer.memory_limit=null", "--print-config")


def test_a_model_summary_has_lines(folder):
    lines = run(folder, "train", "job.yaml", "--run-dir", "summary", "trainer.enable_model_summary=true").stderr.splitlines()
    assert any(line.split()[:2] == ["encoder", "Encoder"] for line in lines) and not any("\\x0a" in line for line in lines)


def test_a_path_cannot_steer_a_terminal(folder):
    name = "run\x1b[31mred\x1b]0;title\x07"
    run(folder, "train", "job.yaml", "--run-dir", name)
    (folder / f"j{name}.yaml").write_text((folder / "job.yaml").read_text())
    for words in (["eval", name], ["sample", name], ["verify", name], ["diff", name, name], ["report", name], ["doctor", name],
                  ["convert", name, name + ".safetensors"], ["train", f"j{name}.yaml", "--dry-run"]):
        done = run(folder, *words)
        assert "\x1b" not in done.stdout + done.stderr and "\x07" not in done.stdout + done.stderr, words
    assert "\\x1b[31mred" in run(folder, "eval", name).stdout  # it is shown, in letters
