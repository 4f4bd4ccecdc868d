"""What is said about a run stays the same: eval gives what training recorded, a resume logs what the undisturbed run logs, diff compares anything."""
import json
import os
import signal
import subprocess
import time

import pytest
import torch
from safetensors.torch import save_file
from test_chaos import JOB

REDLINE = os.path.abspath(os.environ.get("REDLINE", "build/redline"))
WARM_UP = ["model.kl_schedule.kind=linear", "model.kl_schedule.warm_up_steps=100"]
TIMES = {"samples_per_second", "steps_per_second", "wall_time", "step_seconds", "data_wait_share", "cores_used", "memory_live_bytes", "memory_peak_bytes", "rss_bytes",
         "cache_hit_share", "flops_share", "checkpoint_seconds", "step_time_drift", "validation_seconds", "bad_samples", "read_share", "decode_share",
         "transform_share", "collate_share"}


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    folder = tmp_path_factory.mktemp("numbers")
    (folder / "job.yaml").write_text(JOB)
    return folder


def redline(home, *words, code=0, env=None):
    done = subprocess.run([REDLINE, *map(str, words)], capture_output=True, text=True, cwd=home, timeout=120, env=os.environ | (env or {}))
    assert done.returncode == code, (words, done.returncode, done.stdout, done.stderr)
    return done


def train(home, name, *words, code=0, env=None):
    return redline(home, "train", "job.yaml", "--run-dir", name, *words, code=code, env=env)


def points(run):
    """(step, name) -> value as the run's reader sees it: later lines win."""
    values = {}
    for line in (run / "metrics.jsonl").read_text().splitlines()[1:]:
        point = json.loads(line)
        values[point["step"], point["name"]] = point["value"]
    return values


def recorded_equals_evaluated(home, run, *words):
    answer = json.loads(redline(home, "--json", "eval", run, *words).stdout)
    recorded = {name: value for (step, name), value in points(home / run).items() if step == answer["step"] and name.startswith("val_")}
    assert {name: recorded[name] for name in answer["metrics"]} == answer["metrics"], run
    return answer


@pytest.mark.parametrize("words", [[], ["exp_manager.ema.enable=true", "exp_manager.ema.decay=0.9"], ["trainer.limit_val_batches=2", "trainer.precision=bf16-mixed"]])
def test_eval_gives_exactly_what_the_run_recorded(home, words):
    """The KL weight grows, so a fresh task's loss is another one."""
    name = f"eval{len(words)}{'ema' in str(words)}"
    train(home, name, "trainer.max_steps=20", "trainer.val_check_interval=10", *WARM_UP, *words)
    answer = recorded_equals_evaluated(home, name)
    assert answer["step"] == 20 and 0 < answer["metrics"]["val_kl_weight"] < 1
    assert answer["metrics"]["val_kl_weight"] == pytest.approx(0.21)  # of the next step
    weights = sorted((home / name / "checkpoints").glob("step-*"))[-1] / "model.safetensors"
    done = redline(home, "--json", "eval", name, "--checkpoint", weights)
    assert "weights only" in done.stderr


def test_best_follows_the_metric_that_keeps_its_meaning(home):
    """While the KL weight grows val_loss rises: early generations would look best."""
    steady = "exp_manager.checkpoint_callback_params.monitor"
    config = json.loads(train(home, "x", "--print-config", "--json", *WARM_UP).stdout)
    params = config["exp_manager"]["checkpoint_callback_params"]
    assert params["monitor"] == "val_negative_elbo" and config["exp_manager"]["early_stopping_callback_params"]["monitor"] == "val_negative_elbo"
    assert json.loads(train(home, "x", "--print-config", "--json").stdout)["exp_manager"]["checkpoint_callback_params"]["monitor"] == "val_loss"
    words = ["trainer.max_steps=40", "trainer.val_check_interval=10", "model.kl_schedule.kind=linear", "model.kl_schedule.warm_up_steps=30", "model.optim.lr=0.003",
             "exp_manager.checkpoint_callback_params.save_top_k=-1"]
    said = train(home, "steady", *words).stderr
    assert "changes its meaning" not in said
    manifests = [json.loads((path / "MANIFEST.json").read_text()) for path in sorted((home / "steady/checkpoints").glob("step-*"))]
    values = {m["step"]: m["metric"] for m in manifests if m["metric"] is not None}
    assert {m["monitor"] for m in manifests} == {"val_negative_elbo"}
    assert values == {step: points(home / "steady")[step, "val_negative_elbo"] for step in values} and len(values) == 8
    best = json.loads(redline(home, "--json", "eval", "steady", "--checkpoint", "best").stdout)
    assert best["step"] == min(values, key=values.get)
    said = train(home, "asked", *words, f"{steady}=val_loss", "trainer.max_steps=10").stderr
    assert said.count("changes its meaning") == 1
    assert "changes its meaning" not in train(home, "constant", "trainer.max_steps=2", f"{steady}=val_loss").stderr


LOOKS = ["trainer.log_every_n_steps=8", "model.monitor.update_frequency=5", "model.monitor.window_size=7", "exp_manager.checkpoint_callback_params.every_n_train_steps=3",
         "exp_manager.checkpoint_callback_params.async=false", *WARM_UP]


def same_record(home, one, other):
    """Every logged value that is no time or rate, the steps, the tensors and the state of the last generation."""
    a, b = points(home / one), points(home / other)
    lasting = {key for key in a if key[1] not in TIMES}
    assert lasting == {key for key in b if key[1] not in TIMES}
    assert {key: (a[key], b[key]) for key in lasting if a[key] != b[key]} == {}
    done = redline(home, "diff", one, other)
    assert "steps: equal bit for bit" in done.stdout and "state.json differs" not in done.stdout
    return lasting


def test_what_is_logged_after_a_kill_is_what_the_undisturbed_run_logs(home):
    """Log lines every 8 steps, looks every 5, generations every 3; killed between a log line and the next."""
    words = ["trainer.max_steps=40", *LOOKS]
    train(home, "whole", *words)
    train(home, "killed", *words, code=-9, env={"REDLINE_FAULTS": "checkpoint.kill@80"})
    saved = max(int(path.name[5:]) for path in (home / "killed/checkpoints").glob("step-*"))
    assert 0 < saved < 40 and saved % 8 and saved % 5
    train(home, "killed", *words)
    lasting = same_record(home, "whole", "killed")
    assert len([key for key in lasting if key[1] == "loss"]) == 5 and len([key for key in lasting if key[1] == "posterior/kl"]) == 8


def test_what_is_logged_after_signals_is_what_the_undisturbed_run_logs(home):
    """A signal ends an accumulation group in its middle: what its first half left in the monitor's window must not count."""
    words = ["trainer.max_steps=150", "trainer.accumulate_grad_batches=4", *LOOKS]
    train(home, "calm", *words)
    stopped = 0
    for _ in range(4):
        process = subprocess.Popen([REDLINE, "train", "job.yaml", "--run-dir", "stopped", *words], cwd=home, stderr=subprocess.PIPE, text=True)
        before = set((home / "stopped/checkpoints").glob("step-*")) if (home / "stopped").exists() else set()
        while process.poll() is None and not set((home / "stopped/checkpoints").glob("step-*")) - before:
            time.sleep(0.005)
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=60)
        assert process.returncode in (0, 75)
        stopped += process.returncode == 75
    assert stopped >= 2
    train(home, "stopped", *words)
    same_record(home, "calm", "stopped")


def different(tensor):
    raw = tensor.clone().reshape(-1)
    if raw.numel():
        raw.view(torch.uint8)[-1] = 1
    return raw.reshape(tensor.shape)


def test_diff_compares_every_type_and_shape(home):
    types = [torch.bool, torch.uint8, torch.int8, torch.int16, torch.uint16, torch.int32, torch.uint32, torch.int64, torch.uint64, torch.float16, torch.bfloat16,
             torch.float32, torch.float64, torch.float8_e4m3fn, torch.float8_e5m2, torch.complex64]
    shapes = {"scalar": (), "one": (1,), "empty": (0, 3), "many": (2, 3)}
    a = {f"{kind}.{name}": torch.zeros(shape, dtype=kind) for kind in types for name, shape in shapes.items()}
    save_file(a, home / "a.safetensors")
    save_file({name: different(tensor) for name, tensor in a.items()}, home / "b.safetensors")
    save_file({name: torch.zeros((5, *tensor.shape), dtype=tensor.dtype) for name, tensor in a.items()}, home / "c.safetensors")
    assert "equal bit for bit" in redline(home, "diff", "a.safetensors", "a.safetensors").stdout
    done = redline(home, "--json", "diff", "a.safetensors", "b.safetensors", code=1)
    answer = json.loads(done.stdout)
    assert len(answer["different_tensors"]) == 3 * len(types) and {one["elements"] for one in answer["different_tensors"]} == {1}
    assert done.stderr.strip() == "error: The two differ."
    answer = json.loads(redline(home, "--json", "diff", "a.safetensors", "c.safetensors", code=1).stdout)
    assert all(one["what"].startswith("shape [") for one in answer["different_tensors"]) and len(answer["different_tensors"]) == 4 * len(types)
