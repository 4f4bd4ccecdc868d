"""Training as a process: exit codes, signals, kills, and files read by the tools people use."""
import csv
import json
import os
import pathlib
import random
import signal
import subprocess
import time

import pytest
import torch
from safetensors.torch import load_file, save_file

BUILD = pathlib.Path(os.environ.get("REDLINE_BUILD", pathlib.Path(__file__).resolve().parents[2] / "build"))
PROGRAM = BUILD / "tests/example_train"
BASE = ["model.train_ds.batch_size=8", "model.train_ds.shuffle=true", "model.validation_ds.batch_size=16", "trainer.intra_op_threads=1",
        "trainer.enable_progress_bar=false"]


def start(folder, *words, **kwargs):
    assert PROGRAM.exists(), f"{PROGRAM} is built by `make build`"
    return subprocess.Popen([PROGRAM, "train", *BASE, f"--run-dir={folder}", *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **kwargs)


def train(folder, *words, code=0, env=None):
    process = start(folder, *words, env={**os.environ, **(env or {})})
    out, err = process.communicate(timeout=300)
    assert process.returncode == code, (words, process.returncode, out, err)
    return err


def newest(folder):
    generations = sorted((folder / "checkpoints").glob("step-*"))
    return load_file(generations[-1] / "model.safetensors")


def losses(folder):
    """Of metrics.jsonl, the last value per step."""
    values = {}
    for line in (folder / "metrics.jsonl").read_text().splitlines():
        point = json.loads(line)
        if point.get("name", "") == "loss" or "loss" in point:
            values[point["step"]] = point.get("value", point.get("loss"))
    return values


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    folder = tmp_path_factory.mktemp("whole") / "run"
    train(folder, "trainer.max_steps=300", "trainer.log_every_n_steps=1", "exp_manager.histograms_every_n_steps=50", "--trace=steps=10..20")
    return folder


def test_the_weights_load_in_python_with_one_line(whole):
    weights = newest(whole)
    assert set(weights) == {"first.weight", "first.bias", "second.weight", "second.bias"}
    assert all(torch.isfinite(w).all() and w.dtype == torch.float32 for w in weights.values())


def test_tensorboard_reads_scalars_and_histograms(whole):
    from tensorboard.backend.event_processing import event_accumulator as ea
    accumulator = ea.EventAccumulator(str(whole / "tensorboard"), size_guidance={ea.SCALARS: 0, ea.HISTOGRAMS: 0})
    accumulator.Reload()
    tags = accumulator.Tags()
    assert {"loss", "learning_rate", "val_loss", "samples_per_second"} <= set(tags["scalars"])
    points = accumulator.Scalars("loss")
    assert [p.step for p in points] == list(range(1, 301))
    assert points[-1].value < points[0].value
    assert "weights/first.weight" in tags["histograms"]
    text = accumulator.Tensors("config")[0].tensor_proto.string_val[0].decode()
    assert "max_steps: 300" in text
    recorded = losses(whole)
    assert len(recorded) == 300 and abs(recorded[300] - points[-1].value) < 1e-6


def test_csv_has_one_row_per_log_step(whole):
    rows = list(csv.DictReader((whole / "metrics.csv").open()))
    assert [int(r["step"]) for r in rows][-1] == 300
    assert float(rows[-1]["loss"]) > 0


def test_the_trace_follows_the_format(whole):
    trace = json.loads((whole / "trace.json").read_text())
    complete = [e for e in trace["traceEvents"] if e["ph"] == "X"]
    names = {e["name"] for e in complete}
    assert {"forward", "backward", "optimiser", "wait"} <= names
    # Events of one lane nest or follow each other, as viewers demand.
    for lane in {(e["pid"], e["tid"]) for e in complete}:
        stack = []
        for event in sorted((e for e in complete if (e["pid"], e["tid"]) == lane), key=lambda e: (e["ts"], -e["dur"])):
            while stack and event["ts"] >= stack[-1] - 1e-3:
                stack.pop()
            assert not stack or event["ts"] + event["dur"] <= stack[-1] + 1e-3
            stack.append(event["ts"] + event["dur"])


def test_python_weights_start_a_run(whole, tmp_path):
    weights = {k: v.to(torch.float16) for k, v in newest(whole).items()}
    weights["not_ours"] = torch.ones(3)
    del weights["second.bias"]
    save_file(weights, tmp_path / "w.safetensors")
    err = train(tmp_path / "run", "trainer.max_steps=1", f"load_from={tmp_path / 'w.safetensors'}")
    assert "not_ours" in err and "second.bias" in err and "3 tensors loaded" in err


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGUSR1, signal.SIGINT])
def test_signals_save_and_the_next_start_continues(whole, tmp_path, number):
    folder = tmp_path / "run"
    draw = random.Random(int(number))
    stopped = 0
    for _ in range(6):
        process = start(folder, "trainer.max_steps=300", "trainer.log_every_n_steps=1")
        time.sleep(draw.uniform(0.2, 1.2))
        process.send_signal(number)
        _, err = process.communicate(timeout=120)
        assert process.returncode in (0, 75, -number), err
        if process.returncode == 75:
            stopped += 1
            assert "run the same command again" in err
        if process.returncode == 0:
            break
    train(folder, "trainer.max_steps=300", "trainer.log_every_n_steps=1")
    assert all(torch.equal(a, b) for a, b in zip(newest(whole).values(), newest(folder).values()))


def test_a_second_sigint_ends_at_once(tmp_path):
    process = start(tmp_path / "run", "trainer.max_steps=1000000", env={**os.environ})
    deadline = time.time() + 60
    while not (tmp_path / "run" / "steps.bin").exists() and time.time() < deadline:
        time.sleep(0.05)
    time.sleep(0.5)
    process.send_signal(signal.SIGINT)
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=60)
    assert process.returncode in (-signal.SIGINT, 75)


def test_kills_cost_nothing_that_was_saved(whole, tmp_path):
    folder = tmp_path / "run"
    draw = random.Random(5)
    words = ["trainer.max_steps=300", "trainer.log_every_n_steps=1", "exp_manager.checkpoint_callback_params.every_n_train_steps=7"]
    for _ in range(8):
        process = start(folder, *words, f"model.train_ds.num_workers={draw.randint(0, 3)}")
        time.sleep(draw.uniform(0.3, 1.0))
        process.kill()
        process.communicate()
    train(folder, *words)
    assert all(torch.equal(a, b) for a, b in zip(newest(whole).values(), newest(folder).values()))
    assert losses(folder) == losses(whole)


def test_exit_codes_and_words(tmp_path):
    assert "nothing to train" in train(tmp_path / "a", "trainer.max_steps=0", code=2)
    assert "did you mean" in train(tmp_path / "b", "trainer.max_step=3", code=2)
    assert "bf16-mixed" in train(tmp_path / "c", "trainer.precision=8", code=2)
    (tmp_path / "file").write_text("x")
    train(tmp_path / "file" / "run", "trainer.max_steps=1", code=7)
    assert "GPU" in train(tmp_path / "d", "trainer.accelerator=gpu", "trainer.max_steps=1", code=2)
    assert "memory" in train(tmp_path / "e", "trainer.memory_limit=200KiB", "trainer.max_steps=1", "model.hidden=4096", code=6)
    train(tmp_path / "f", "trainer.max_time=1s", "trainer.max_steps=100000000")
    assert not list(tmp_path.glob("a/*")), "nothing is written for a job that cannot run"
