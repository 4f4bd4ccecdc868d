"""`redline train` and what uses its runs, as a user meets them: exit codes, one sentence, nothing half written."""
import json
import os
import signal
import subprocess
import time

import pyarrow.parquet
import pytest
import torch
from safetensors.torch import load_file, save_file
from test_chaos import JOB

REDLINE = os.environ.get("REDLINE", "build/redline")


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    folder = tmp_path_factory.mktemp("train")
    (folder / "job.yaml").write_text(JOB)
    return folder


def redline(home, *words, code=0):
    done = subprocess.run([REDLINE, *map(str, words)], capture_output=True, text=True, cwd=home, timeout=120)
    assert done.returncode == code, (words, done.returncode, done.stdout, done.stderr)
    return done


def train(home, name, *words, code=0):
    return redline(home, "train", "job.yaml", "--run-dir", name, *words, code=code)


@pytest.fixture(scope="module")
def run(home):
    train(home, "run", "--trace", "steps=3..5")
    return home / "run"


@pytest.mark.parametrize("words,code,said", [
    (["trainer.max_steps=0"], 2, "nothing to train"),
    (["trainer.max_stesp=3"], 2, "max_steps"),
    (["trainer.precision=7"], 2, "bf16-mixed"),
    (["model.optim.sched.name=sine"], 2, "must be one of constant"),
    (["load_from=nothing.safetensors"], 4, "nothing.safetensors"),
    (["--resume", "nothing"], 4, "no checkpoint at 'nothing'"),
    (["--trace", "steps=9..3"], 2, "steps=FIRST..LAST"),
    (["trainer.max_time=soon"], 2, "such as 4h"),
    (["trainer.memory_limit=lots"], 2, "such as 8GiB"),
    (["trainer.accelerator=gpu"], 2, "sees none"),
    (["model.train_ds.batch_size=0"], 2, "batch_size"),
])
def test_a_job_that_cannot_run_gets_one_sentence_and_leaves_nothing(home, words, code, said):
    done = train(home, "never", *words, code=code)
    assert said in done.stderr and done.stderr.count("error:") == 1 and len(done.stderr.splitlines()) <= 2, done.stderr
    assert done.stdout == "" and not (home / "never").exists()


def test_unwritable_places(home):
    (home / "file").write_text("x")
    assert "Not a directory" in train(home, "file/run", code=7).stderr
    assert "is a file" in train(home, "file", code=2).stderr
    assert (home / "file").read_text() == "x"


def test_a_schedule_longer_than_the_run_is_said(home):
    assert "never reaches its end" in train(home, "long", "model.optim.sched.max_steps=500", "trainer.max_steps=10").stderr
    assert "warm-up of 500 steps is longer than the run" in train(home, "slow", "model.optim.sched.warmup_steps=500", "trainer.max_steps=10").stderr


def test_a_finished_run_says_so(home, run):
    assert "Nothing left to do" in train(home, "run").stderr


def test_dry_run_writes_nothing(home):
    said = redline(home, "train", "job.yaml", "--run-dir", "dry", "--dry-run").stdout
    assert "parameters" in said and "longest samples" in said and "steps per epoch" in said
    assert not (home / "dry").exists()


def test_the_trace_has_the_chosen_steps(run):
    events = json.loads((run / "trace.json").read_text())["traceEvents"]
    assert {"forward", "backward", "optimiser"} <= {e["name"] for e in events}


def test_diverging_ends_with_code_5_and_the_last_good_state(home):
    done = train(home, "diverges", "model.optim.lr=1.0e30", "model.optim.sched.name=constant", code=5)
    assert "samples" in done.stderr and "the state of step" in done.stderr
    assert redline(home, "verify", "diverges").returncode == 0


def test_a_low_memory_limit_splits_and_a_hopeless_one_ends_with_code_6(home):
    sgd = ["trainer.max_steps=8", "model.optim.name=sgd", "model.optim.lr=0.01"]  # Adam turns rounding in zero gradients into whole steps
    whole = train(home, "free", *sgd)
    assert "ran out of memory" not in whole.stderr
    tight = train(home, "tight", *sgd, "trainer.memory_limit=480KiB", "trainer.guards.check_weights=false")
    assert "smaller pieces" in tight.stderr
    newest = [sorted((home / name / "checkpoints").glob("step-*"))[-1] / "model.safetensors" for name in ("free", "tight")]
    free, split = load_file(newest[0]), load_file(newest[1])
    assert all(torch.allclose(free[name], split[name], rtol=1e-4, atol=1e-6) for name in free)
    assert "one sample does not fit" in train(home, "hopeless", "trainer.memory_limit=300KiB", code=6).stderr


def test_resume_from_an_older_generation(home, run):
    words = ["exp_manager.checkpoint_callback_params.save_top_k=9", "exp_manager.checkpoint_callback_params.keep_last=20"]
    train(home, "older", *words)
    names = sorted(p.name for p in (home / "older/checkpoints").iterdir())
    done = train(home, "older", *words, "--resume", f"older/checkpoints/{names[1]}/")
    assert "set aside" in done.stderr
    left = {p.name for p in (home / "older/checkpoints").iterdir()}
    assert f"superseded-{names[-1]}" in left and names[-1] in left and names[1] in left
    redline(home, "diff", "run", "older")


def test_a_damaged_generation_is_named_and_the_one_before_used(home, run):
    train(home, "damaged")
    newest = sorted((home / "damaged/checkpoints").glob("step-*"))[-1]
    data = bytearray((newest / "model.safetensors").read_bytes())
    data[len(data) // 2] ^= 8
    (newest / "model.safetensors").write_bytes(data)
    assert "block 0" in redline(home, "verify", "damaged", code=4).stdout
    done = train(home, "damaged")
    assert "model.safetensors" in done.stderr and "the generation before it is used" in done.stderr
    assert (newest.parent / f"quarantine-{newest.name}").exists()
    redline(home, "diff", "run", "damaged")


def test_early_stopping(home):
    params = "exp_manager.early_stopping_callback_params"
    done = train(home, "early", "exp_manager.create_early_stopping_callback=true", f"{params}.monitor=val_loss", f"{params}.patience=1",
                 f"{params}.min_delta=100", "trainer.val_check_interval=6")
    assert "early stopping: val_loss" in done.stderr
    assert "which no validation gives" in train(home, "early2", "exp_manager.create_early_stopping_callback=true", f"{params}.monitor=nope", code=2).stderr


def test_eval_predict_and_convert(home, run):
    metrics = json.loads(redline(home, "--json", "eval", "run").stdout)["metrics"]
    recorded = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    last = [m["value"] for m in recorded if m.get("name") == "val_loss"][-1]
    assert metrics["val_loss"] == pytest.approx(last, rel=1e-6)
    redline(home, "data", "synth", "sequences", "--out", "new", "num=20", "vocab_size=50", "median_length=15", "max_length=40")
    redline(home, "predict", "run", "new/train", "--out", "p.safetensors")
    redline(home, "predict", "run", "new/train", "--out", "p.parquet")
    redline(home, "predict", "run", "new/train", "--out", "o.safetensors", "model.validation_ds.batch_size=3", "model.validation_ds.num_workers=0")  # with overrides
    tensors, table = load_file(home / "p.safetensors"), pyarrow.parquet.read_table(home / "p.parquet")
    torch.testing.assert_close(load_file(home / "o.safetensors")["mu"], tensors["mu"])
    assert tensors["mu"].shape == (len(tensors["sample_ids"]), 4) and table.num_rows == len(tensors["sample_ids"])
    assert torch.equal(torch.tensor(table["mu"].to_pylist()), tensors["mu"])
    assert ".parquet, .safetensors or .npy" in redline(home, "predict", "run", "new/train", "--out", "p.txt", code=2).stderr
    assert "no folder" in redline(home, "predict", "run", "new/train", "--out", "none/p.parquet", code=2).stderr
    assert "nothing at" in redline(home, "predict", "run", "gone", "--out", "q.parquet", code=3).stderr
    assert "no run directory" in redline(home, "eval", "new", code=3).stderr
    redline(home, "convert", "run", "w.safetensors")
    newest = sorted((run / "checkpoints").glob("step-*"))[-1]
    assert load_file(home / "w.safetensors").keys() == load_file(newest / "model.safetensors").keys()
    assert "no averaged weights" in redline(home, "convert", "safetensors", "run", "ema.safetensors", "--ema", code=4).stderr
    train(home, "averaged", "exp_manager.ema.enable=true", "exp_manager.ema.decay=0.9", "trainer.max_steps=20")
    redline(home, "convert", "safetensors", "averaged", "ema.safetensors", "--ema")
    live = load_file(sorted((home / "averaged/checkpoints").glob("step-*"))[-1] / "model.safetensors")
    averaged = load_file(home / "ema.safetensors")
    assert averaged.keys() == live.keys() and any(not torch.equal(averaged[n], live[n]) for n in live)
    partial = {name: tensor.half() for name, tensor in list(load_file(home / "w.safetensors").items())[:5]} | {"not_ours": torch.ones(2)}
    save_file(partial, home / "partial.safetensors")
    said = train(home, "partial", "load_from=partial.safetensors", "trainer.max_steps=8").stderr
    assert "5 tensors loaded" in said and "not_ours" in said and "missing" in said
    assert "do not fit" in train(home, "strict", "load_from=partial.safetensors", "load_strict=true", code=4).stderr
    assert not (home / "strict").exists()


def test_sigint_early_and_late(home):
    """Whenever it comes: the handler's code, or the signal's own before there is anything to save; the next start continues."""
    codes = set()
    for delay in (0.02, 0.1, 0.2, 0.3, 0.45, 0.6):
        process = subprocess.Popen([REDLINE, "train", "job.yaml", "--run-dir", "interrupted", "trainer.max_epochs=500"], cwd=home, stderr=subprocess.PIPE, text=True)
        time.sleep(delay)
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=60)
        codes.add(process.returncode)
        assert process.returncode in (75, -signal.SIGINT), (delay, err)
        if (home / "interrupted/checkpoints").exists():
            assert redline(home, "verify", "interrupted").returncode == 0
    assert 75 in codes


def test_quiet_and_json_logs_hold_nothing_else(home):
    bar = "trainer.enable_progress_bar=true"
    assert train(home, "quiet", "-q", bar).stderr == ""
    lines = train(home, "as-json", "--log-format", "json", bar).stderr.splitlines()
    assert lines and all(json.loads(line)["level"] for line in lines)
    assert "samples/s" in train(home, "as-text", bar).stderr  # the control: without them there is a progress line


def test_what_changed_since_the_checkpoint_is_named(home):
    words = ["exp_manager.checkpoint_callback_params.every_n_train_steps=2"]
    train(home, "changed", *words, "trainer.max_steps=4")
    said = train(home, "changed", *words, "trainer.max_steps=6", "model.optim.lr=0.125").stderr
    assert "model.optim.lr: " in said and "-> 0.125" in said and "trainer.max_steps: 4 -> 6" in said and "hash" not in said
