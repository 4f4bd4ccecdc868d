"""Every command on the image task, as a user runs them, and every knob of the fourth guide: accepted, and with its effect."""
import json
import os
import pathlib
import random
import signal
import subprocess
import time

import numpy
import pytest
import safetensors.numpy
import yaml

from run_records import read_steps

ROOT = pathlib.Path(__file__).resolve().parents[2]
REDLINE = os.environ.get("REDLINE", str(ROOT / "build/redline"))
SMALL = ROOT / "recipes/convnext_small.yaml"
# The small recipe made tiny: 2 stages, 32² pictures, 96 of them.
SYNTH = "{kind: images, num: 96, num_validation: 24, seed: 1, num_classes: 6, width: 32, height: 32}"
TINY = ["model.depths=[1,1]", "model.dims=[8,16]", "model.image_size=32", f"model.train_ds.synth={SYNTH}", f"model.validation_ds.synth={SYNTH}",
        "model.train_ds.batch_size=16", "model.train_ds.num_workers=1", "model.validation_ds.batch_size=12", "trainer.intra_op_threads=1",
        "trainer.enable_progress_bar=false", "trainer.max_epochs=3"]


def redline(*words, code=0, timeout=300, **more):
    done = subprocess.run([REDLINE, *map(str, words)], capture_output=True, text=True, timeout=timeout, **more)
    assert done.returncode == code, (done.returncode, done.stdout[-3000:], done.stderr[-3000:])
    return done


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("run") / "run"
    redline("train", SMALL, *TINY, "--run-dir", folder)
    return folder


@pytest.mark.skipif(os.environ.get("REDLINE_SLOW") != "1", reason="minutes of training: REDLINE_SLOW=1")
@pytest.mark.parametrize("seed", [11, 12, 13])
def test_the_small_recipe_separates_classes_and_needs_training_for_it(tmp_path, seed):
    redline("train", SMALL, f"seed={seed}", "--run-dir", tmp_path / "trained", timeout=600)
    redline("train", SMALL, f"seed={seed}", "model.optim.lr=1e-12", "model.optim.sched.min_lr=0", "trainer.max_epochs=1", "--run-dir", tmp_path / "untrained", timeout=600)
    recall = [json.loads(redline("--json", "eval", tmp_path / name).stdout)["metrics"]["val_recall_at_1"] for name in ("trained", "untrained")]
    assert recall[0] > 0.9 and recall[1] < 0.4, recall


def weights(run):
    [newest] = sorted((run / "checkpoints").glob("step-*"))[-1:]
    return {path.name: safetensors.numpy.load_file(path) for path in newest.glob("*.safetensors")}


def same_weights(a, b):
    assert a.keys() == b.keys() and a
    return all(numpy.array_equal(a[file][name], b[file][name]) for file in a for name in a[file])


def test_train_records_its_phases_and_the_loaders_stages(run):
    rows = read_steps(run / "steps.bin")
    assert len(rows) == 18
    stages = rows["stage_ns"].sum(0)  # read, decode, transform, collate
    assert (stages > 0).all(), f"pictures are read, decoded, transformed and collated: {stages}"
    assert stages[1] > stages[2], f"a JPEG's decoding takes longer than what is left of its transform: {stages}"


def test_a_killed_run_goes_on_as_if_nothing_had_happened(run, tmp_path):
    folder = tmp_path / "killed"
    words = [REDLINE, "train", str(SMALL), *TINY, "exp_manager.checkpoint_callback_params.every_n_train_steps=4", "--run-dir", str(folder)]
    draw = random.Random(7)
    killed = 0
    for _ in range(40):  # until it was killed three times after a checkpoint, or ended
        process = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        aim = 4 * (killed + 1)
        while process.poll() is None and not (folder / f"checkpoints/step-{aim:08d}").exists():
            time.sleep(0.005)
        if process.poll() is None:
            time.sleep(draw.random() * 0.02)
            process.send_signal(signal.SIGKILL)
        if process.wait() == 0:
            break
        killed += 1
        if killed == 3:
            break
    assert killed >= 1
    redline("train", SMALL, *TINY, "exp_manager.checkpoint_callback_params.every_n_train_steps=4", "--run-dir", folder, "--resume", "auto")
    assert same_weights(weights(run), weights(folder))
    losses = [{int(row["step"]): float(row["loss"]) for row in read_steps(one / "steps.bin")} for one in (run, folder)]
    assert losses[0] == losses[1]


def test_eval_gives_what_the_run_recorded(run):
    found = json.loads(redline("--json", "eval", run).stdout)
    recorded = {}
    for line in (run / "metrics.jsonl").read_text().splitlines():
        row = json.loads(line)
        recorded |= {row["name"]: row["value"]} if "name" in row else {}
    metrics = found["metrics"]
    assert abs(metrics["val_loss"] - recorded["val_loss"]) < 1e-6 and metrics["val_accuracy"] == recorded["val_accuracy"]
    assert 0.0 <= metrics["val_recall_at_1"] <= 1.0 and -1.0 <= metrics["val_silhouette"] <= 1.0


def test_predict_writes_an_embedding_of_each_picture_in_the_folders_order(run, tmp_path):
    folder = tmp_path / "new"
    redline("data", "synth", "images", "--out", folder, "--num", "12", "--num_validation", "0", "--seed", "9", "--num_classes", "6", "--width", "32", "--height", "32")
    redline("predict", run, folder / "train", "--out", tmp_path / "all.safetensors")
    got = safetensors.numpy.load_file(tmp_path / "all.safetensors")
    assert got["embedding"].shape == (12, 16) and got["logits"].shape == (12, 6)
    assert got["labels"].tolist() == [i // 2 for i in range(12)]
    assert numpy.isfinite(got["embedding"]).all() and len(numpy.unique(got["embedding"].round(6), axis=0)) == 12
    # Order and batch size change nothing: each row is its picture's.
    redline("predict", run, folder / "train", "model.validation_ds.batch_size=5", "--out", tmp_path / "fives.safetensors")
    assert numpy.abs(safetensors.numpy.load_file(tmp_path / "fives.safetensors")["embedding"] - got["embedding"]).max() < 1e-5


def test_probe_gives_losses_and_gradients(run, tmp_path):
    safetensors.numpy.save_file(weights(run)["model.safetensors"], tmp_path / "weights.safetensors")
    draw = numpy.random.default_rng(3)
    safetensors.numpy.save_file({"images": draw.normal(size=(4, 3, 32, 32)).astype(numpy.float32), "labels": numpy.array([0, 5, 2, 1])}, tmp_path / "batch.safetensors")
    words = ["probe", SMALL, *TINY, "--weights", tmp_path / "weights.safetensors", "--batch", tmp_path / "batch.safetensors", "--steps", "3"]
    found = {}
    for fused in ("true", "false"):
        redline(*words, f"model.fused_kernels={fused}", "--out", tmp_path / f"{fused}.safetensors")
        found[fused] = safetensors.numpy.load_file(tmp_path / f"{fused}.safetensors")
    assert found["true"]["losses"].shape == (3,) and found["true"]["losses"][2] < found["true"]["losses"][0]
    for name, value in found["false"].items():
        assert numpy.abs(value - found["true"][name]).max() <= 1e-4 * max(1e-6, numpy.abs(value).max()), name


def test_report_shows_the_run(run, tmp_path):
    text = redline("report", run, "--html", tmp_path / "page.html").stdout
    for word in ("forward", "backward", "validate", "decode"):
        assert word in text
    assert "decode 0 ns" not in text and "costs 0 ns" not in text
    assert "<html" in (tmp_path / "page.html").read_text()


def test_doctor_names_phases_and_says_nothing_of_its_trials(tmp_path):
    done = redline("--json", "doctor", SMALL, *TINY, "--steps", "12", "--blocks", "0", cwd=tmp_path)
    answer = json.loads(done.stdout)
    text = json.dumps(answer)
    for phase in ("wait", "forward", "backward", "optimiser", "validate"):
        assert f'"{phase}"' in text, phase
    assert "recall_at_1" not in done.stderr, "a trial's embeddings are nobody's news"


# The same in a file, and large enough to learn: what is typed beside a recipe the tuner leaves alone.
JOB = f"""
base: {SMALL}
name: tiny-convnext
model:
  depths: [1, 1]
  dims: [16, 32]
  num_classes: 3
  image_size: 32
  train_ds: {{synth: {{kind: images, num: 1200, num_validation: 240, seed: 1, num_classes: 3, width: 32, height: 32}}, batch_size: 16, num_workers: 1}}
  validation_ds: {{synth: {{kind: images, num: 1200, num_validation: 240, seed: 1, num_classes: 3, width: 32, height: 32}}, batch_size: 60}}
trainer: {{max_epochs: 4, intra_op_threads: 1, enable_progress_bar: false}}
"""


@pytest.fixture
def job(tmp_path):
    (tmp_path / "job.yaml").write_text(JOB)
    return tmp_path / "job.yaml"


def test_the_tuner_knows_the_tasks_switches(job, tmp_path):
    answer = json.loads(redline("--json", "tune", job, "trainer.max_epochs=40", "--budget", "8s", "--card", tmp_path / "card.json", "--out", tmp_path / "tuned.yaml",
                                cwd=tmp_path).stdout)
    entries = {entry["field"]: entry for entry in answer["card"]["ledger"]["entries"]}
    for field in ("precision", "channels_last", "fused_kernels", "num_workers", "decode", "batch_size", "micro_batch_size", "cache", "prefetch_factor", "log_every_n_steps"):
        assert any(field in name.split(" x ") for name in entries), (field, sorted(entries))
    assert entries["is_tarred"]["reason"] and "redline data tar" not in entries["is_tarred"]["reason"], "it packs sound, not pictures"
    assert not any("buckets" in field for field in entries), "pictures have one size"
    redline("train", tmp_path / "tuned.yaml", "trainer.max_steps=2", "--run-dir", tmp_path / "tuned")


def test_race_gives_a_ratio_with_its_interval(tmp_path):
    done = redline("--json", "race", SMALL, *TINY, "--with", "model.train_ds.micro_batch_size=2", "--turn", "0.3s", "--blocks", "2", cwd=tmp_path)
    [other] = json.loads(done.stdout)["settings"]
    assert other["failure"] == "" and 0 < other["low"] <= other["ratio"] <= other["high"] and len(other["seconds"]) == len(other["reference_seconds"]) >= 2


def test_certify_lets_what_changes_nothing_pass_and_stops_a_harm(job, tmp_path):
    done = redline("--json", "certify", job, "--pairs", "3", "--with", "model.optim.lr=1e-5", "--alike", "model.train_ds.num_workers=0", "--margin", "20", cwd=tmp_path)
    harm, alike = json.loads(done.stdout)["settings"]
    assert harm["certificate"]["kind"] == "worse", harm
    assert alike["certificate"]["kind"] == "not worse", alike


# What the guide tells its reader to change, as it is written on the command line, and what it must come to.
KNOBS = [
    (["--use_amp"], {"trainer.precision": ("bf16-mixed", "16-mixed")}),
    (["--num_workers", "16"], {"model.train_ds.num_workers": (16,)}),
    (["--num_workers", "24"], {"model.train_ds.num_workers": (24,)}),
    (["--prefetch_factor", "8"], {"model.train_ds.prefetch_factor": (8,)}),
    (["--separation_every_n_epochs", "20"], {"model.monitor.separation_every_n_epochs": (20,)}),
    (["--pictures_every_n_epochs", "100"], {"model.monitor.pictures_every_n_epochs": (100,)}),
    (["--batch_size", "1536"], {"model.train_ds.batch_size": (1536,)}),
    (["--base_channels", "48"], {"model.base_channels": (48,)}),
    (["--num_blocks", "3"], {"model.num_blocks": (3,)}),
    (["--arch", "baseline"], {"model.arch": ("baseline",)}),
]


def resolved(recipe, *words):
    return yaml.safe_load(redline("-q", "train", ROOT / "recipes" / recipe, *words, "--print-config").stdout)


def value_at(config, path):
    for key in path.split("."):
        config = config[key]
    return config


@pytest.mark.parametrize("words,expected", KNOBS, ids=[" ".join(words) for words, _ in KNOBS])
def test_the_guides_knobs_are_understood(words, expected):
    before, after = resolved("convnext.yaml"), resolved("convnext.yaml", *words)
    for path, allowed in expected.items():
        assert value_at(after, path) in allowed
        if path != "model.train_ds.num_workers" or words[1] != "16":
            assert value_at(before, path) != value_at(after, path) or words[0] == "--prefetch_factor", f"{path}: the recipe is the guide's starting point"


@pytest.mark.parametrize("recipe,arch,amp", [("convnext.yaml", "convnext", False), ("convnext_amp.yaml", "convnext", True), ("baseline.yaml", "baseline", False),
                                             ("baseline_amp.yaml", "baseline", True)])
def test_the_guides_four_recipes(recipe, arch, amp):
    config = resolved(recipe)
    assert value_at(config, "model.arch") == arch
    assert (value_at(config, "trainer.precision") != "32-true") == amp
    assert (value_at(config, "model.base_channels"), value_at(config, "model.num_blocks"), value_at(config, "model.train_ds.batch_size")) == (64, 4, 1024)
    assert value_at(config, "model.train_ds.num_workers") == (24 if amp else 16) and value_at(config, "model.train_ds.prefetch_factor") == 8
    assert value_at(config, "model.optim.scale_lr") == "linear" and value_at(config, "exp_manager.ema.enable") is True


def parameters(*words):
    text = redline("train", ROOT / "recipes/convnext.yaml", *words, "model.image_size=32", f"model.train_ds.synth={SYNTH}", f"model.validation_ds.synth={SYNTH}",
                   "model.train_ds.batch_size=4", "model.train_ds.num_workers=0", "model.num_classes=6", "--dry-run").stdout
    return int(text.split(" parameters")[0].split()[-1])


def convnext_parameters(base, blocks, classes=6):
    """Counted by hand: stem, blocks, downsampling, head norm and classifier."""
    dims = [base << s for s in range(4)]
    total = 3 * 16 * base + base + 2 * base
    for i, c in enumerate(dims):
        if i:
            total += 2 * dims[i - 1] + 4 * dims[i - 1] * c + c
        total += blocks * (49 * c + c + 2 * c + (c * 4 * c + 4 * c) + (4 * c * c + c) + c)
    return total + 2 * dims[-1] + dims[-1] * classes + classes


def test_smaller_models_are_smaller():
    assert parameters("--base_channels", "8", "--num_blocks", "2") == convnext_parameters(8, 2)
    assert parameters("--base_channels", "6", "--num_blocks", "1") == convnext_parameters(6, 1)
    assert parameters("--base_channels", "8", "--num_blocks", "2", "--arch", "baseline") < convnext_parameters(8, 2)


def test_scale_lr_follows_the_batch(tmp_path):
    found = {}
    for batch in (8, 16):
        folder = tmp_path / str(batch)
        redline("train", SMALL, *TINY, f"model.train_ds.batch_size={batch}", "model.optim.scale_lr=linear", "model.optim.base_batch_size=16", "model.optim.sched=null",
                "trainer.max_steps=2", "trainer.log_every_n_steps=1", "--run-dir", folder)
        found[batch] = read_steps(folder / "steps.bin")["learning_rate"]
    assert abs(found[8][0] - 0.5 * found[16][0]) < 1e-12 and abs(found[16][0] - 2e-3) < 1e-9


def test_cadences_are_kept(tmp_path):
    looks = {}
    for every in (1, 2):
        folder = tmp_path / str(every)
        redline("train", SMALL, *TINY, "trainer.max_epochs=4", "--separation_every_n_epochs", every, "--pictures_every_n_epochs", 2 * every, "model.monitor.perplexity=3", "--run-dir", folder)
        text = (folder / "metrics.jsonl").read_text().splitlines()
        looks[every] = (sum("separation/val_recall_at_1" in line for line in text), len(list((folder / "embeddings").glob("val_step_*.safetensors"))))
    assert looks == {1: (4, 2), 2: (2, 1)}
