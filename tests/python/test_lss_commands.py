"""Every command on a small Lift-Splat job: what a user does with it, from the first run to the certificate."""
import json
import os
import re
import signal
import subprocess
import time

import pytest
import run_records
from lss_job import REDLINE, make_job, make_scenes, metrics, redline
from safetensors.numpy import load_file


@pytest.fixture(scope="module")
def job(tmp_path_factory):
    folder = tmp_path_factory.mktemp("job")
    return make_job(folder, make_scenes(folder / "set"))


@pytest.fixture(scope="module")
def run(job, tmp_path_factory):
    folder = tmp_path_factory.mktemp("run") / "run"
    redline("train", job, "--run-dir", folder)
    return folder


def test_train_measures_and_draws(run):
    found = metrics(run)
    for name in ("val_vehicle_iou", "val_miou", "val_macc", "val_aacc", "val_loss"):
        assert [step for step, _ in found[name]] == [3, 6]
    assert all(0 <= value <= 1 for name in ("val_vehicle_iou", "val_miou", "val_macc", "val_aacc") for _, value in found[name])
    for name in ("grid_train", "grid_val", "cameras_train", "cameras_val"):
        assert (run / "plots" / f"{name}.png").read_bytes().startswith(b"\x89PNG")


def test_the_report_shows_the_pictures(run, tmp_path):
    said = redline("report", run, "--html", tmp_path / "page.html").stdout
    assert "samples/s" in said and "iterations/s" in said
    page = (tmp_path / "page.html").read_text()
    for name in ("grid_train", "grid_val", "cameras_train", "cameras_val"):
        assert name in page
    assert page.count("data:image/png;base64") >= 4


def test_eval_says_what_the_run_said(run):
    answer = json.loads(redline("-q", "eval", run, "--json").stdout)
    assert answer["samples"] == 3 and answer["step"] == 6
    for name, value in answer["metrics"].items():
        assert metrics(run)[name][-1] == (6, pytest.approx(value, abs=1e-7)), name


def test_predict_writes_a_map_for_each_sample(run, job, tmp_path):
    scenes = job.parent / "set"
    redline("predict", run, scenes, "--out", tmp_path / "a.safetensors")
    redline("predict", run, scenes, "--out", tmp_path / "b.safetensors", "model.validation_ds.batch_size=3", "model.validation_ds.num_workers=2")
    one, two = load_file(tmp_path / "a.safetensors"), load_file(tmp_path / "b.safetensors")
    assert one["preds"].shape == (3, 1, 16, 16) and one["sample_ids"].tolist() == [0, 1, 2]
    assert abs(one["preds"] - two["preds"]).max() < 1e-5, "another batch size is another order of sums"
    assert abs(one["preds"][0] - one["preds"][1]).max() > 1e-6, "pictures matter"


def test_kill_and_resume_is_as_if_nothing_had_happened(job, run, tmp_path):
    words = [REDLINE, "train", str(job), "--run-dir", str(tmp_path / "killed"), "exp_manager.checkpoint_callback_params.every_n_train_steps=1"]
    first = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    deadline = time.monotonic() + 120
    while not list((tmp_path / "killed").glob("checkpoints/step-*")) and time.monotonic() < deadline and first.poll() is None:
        time.sleep(0.005)
    first.send_signal(signal.SIGKILL)
    first.wait()
    assert first.returncode == -signal.SIGKILL or first.returncode == 0
    subprocess.run(words, check=True, capture_output=True, timeout=120)
    whole, resumed = metrics(run), metrics(tmp_path / "killed")
    assert dict(resumed["loss"]) == dict(whole["loss"]) and dict(resumed["val_vehicle_iou"]) == dict(whole["val_vehicle_iou"])


def test_chaos_loses_nothing(job):
    said = redline("chaos", job, "--kills", 2).stdout
    assert "losses of 6 steps: byte-identical" in said and "weights and optimiser: identical" in said and "0 unreadable" in said


def test_doctor_speaks_of_samples_and_iterations(job):
    said = redline("doctor", job, "--steps", 12, "--blocks", 0, "trainer.max_steps=1000", "trainer.max_iters=1000").stdout
    assert re.search(r"[\d.]+\s+samples/s,\s+[\d.]+\s+steps/s", said)
    assert "forward" in said and "transform" in said


def test_doctor_knows_that_a_larger_batch_has_fewer_iterations(tmp_path):
    """The fifth guide's puzzle as run records: 7.45 iterations/s of 4 samples, 3.64 of 8."""
    four = run_records.make_run(tmp_path / "four", {"forward": 1000 / 7.45 / 3, "backward": 1000 / 7.45 * 2 / 3}, samples=4, task="lift_splat", noise=0.001)
    eight = run_records.make_run(tmp_path / "eight", {"forward": 1000 / 3.64 / 3, "backward": 1000 / 3.64 * 2 / 3}, samples=8, task="lift_splat", noise=0.001)
    said = redline("compare", four, eight, code=3).stderr
    assert "not comparable" in said and "fell by 51 %" in said and "samples/s went from 29.8 to 29.1" in said
    said = redline("report", four, eight).stdout
    assert re.search(r"29\.[78]\d*\s+->\s+29\.[01]\d*\s+samples/s", said)


def test_race_and_certify(job):
    said = redline("race", job, "--with", "trainer.intra_op_threads=2", "--blocks", 2, "--turn", "100ms", "trainer.max_iters=400", "trainer.val_check_interval=400").stdout
    assert "trainer.intra_op_threads=2" in said or "intra_op_threads" in said
    said = redline("certify", job, "--with", "model.optim.lr=0", "--steps", 4, "--pairs", 3, timeout=600).stdout
    assert "model.optim.lr=0" in said or "lr" in said


def test_probe_gives_losses_and_gradients(job, run, tmp_path):
    import torch
    from safetensors.torch import save_file
    redline("convert", run, tmp_path / "w.safetensors")
    cameras = 6
    turn = torch.tensor([[0.0, 0.0, 1.0], [-1.0, 0.0, 0.0], [0.0, -1.0, 0.0]])
    batch = {"imgs": torch.sin(torch.arange(2 * cameras * 3 * 32 * 64).float()).view(2, cameras, 3, 32, 64), "rots": turn.expand(2, cameras, 3, 3).contiguous(),
             "trans": torch.zeros(2, cameras, 3), "intrins": torch.tensor([[64.0, 0, 32], [0, 64, 16], [0, 0, 1]]).expand(2, cameras, 3, 3).contiguous(),
             "post_rots": torch.eye(3).expand(2, cameras, 3, 3).contiguous(), "post_trans": torch.zeros(2, cameras, 3),
             "binimgs": (torch.arange(2 * 16 * 16) % 7 == 0).float().view(2, 1, 16, 16)}
    save_file(batch, tmp_path / "batch.safetensors")
    redline("probe", job, "--weights", tmp_path / "w.safetensors", "--batch", tmp_path / "batch.safetensors", "--steps", 2, "--out", tmp_path / "out.safetensors")
    out = load_file(tmp_path / "out.safetensors")
    assert out["losses"].shape == (2,) and out["losses"][1] < out["losses"][0]
    assert out["preds"].shape == (2, 1, 16, 16) and "grad.camencode.depthnet.weight" in out and "geometry" in out


@pytest.mark.parametrize("fault", ["nan.input", "nan.loss", "nan.gradient", "nan.optimizer"])
def test_guards_hold_with_channels_last(job, run, tmp_path, fault):
    """Kernels and their gradients lie with channels last: a fault put into them is a guard's to find, not an error of its own."""
    done = redline("train", job, "--run-dir", tmp_path / "run", env=dict(os.environ, REDLINE_FAULTS=f"{fault}@2"))
    assert "InternalError" not in done.stderr and "view size" not in done.stdout + done.stderr
    found = metrics(tmp_path / "run")
    assert [step for step, _ in found["loss"]] == [1, 2, 3, 4, 5, 6]
    assert found["loss"][0] == metrics(run)["loss"][0]
    assert max(value for _, value in found["guard_actions"]) >= 1, "the fault was there"


@pytest.mark.skipif(os.environ.get("REDLINE_SLOW") != "1", reason="a tuning takes a minute; REDLINE_SLOW=1 runs it")
def test_tune_ends_with_a_recipe_that_trains(job, tmp_path):
    said = redline("tune", job, "--budget", "60s", "trainer.max_iters=2000", "trainer.val_check_interval=500", cwd=tmp_path, timeout=400)
    assert "does not run" not in said.stdout + said.stderr
    [tuned] = tmp_path.glob("*.tuned.yaml")
    redline("train", tuned, "trainer.max_steps=2", "--run-dir", tmp_path / "run")
