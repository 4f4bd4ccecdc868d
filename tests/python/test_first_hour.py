"""The first hour of a new user: own data, own results, words and numbers, a list of runs; each command with its exit code, what it says and what it leaves."""
import csv
import json
import math
import os
import pathlib
import re
import shutil
import struct
import subprocess
import tarfile
import time
import unicodedata
import wave

import numpy
import pandas
import pyarrow
import pyarrow.parquet
import pytest
from PIL import Image
from safetensors import safe_open

import run_records

ROOT = pathlib.Path(__file__).resolve().parents[2]
REDLINE = os.environ.get("REDLINE", str(ROOT / "build/redline"))
SPEECH = ROOT / "recipes/nest_fast-conformer_small.yaml"
SEQUENCES = ROOT / "recipes/sequence_vae.yaml"
PICTURES = ROOT / "recipes/convnext_small.yaml"
SMALL_SPEECH = ["model.encoder.n_layers=1", "model.encoder.d_model=32", "model.encoder.n_heads=2", "trainer.max_steps=2", "model.train_ds.batch_size=2",
                "model.validation_ds.batch_size=2", "model.train_ds.num_workers=0"]
SMALL_SEQUENCES = ["model.d_model=16", "model.n_heads=2", "model.d_ff=32", "model.n_encoder_layers=1", "model.n_decoder_layers=1", "model.latent_dim=4", "trainer.max_steps=3",
                   "model.train_ds.num_workers=0", "trainer.val_check_interval=3", "trainer.log_every_n_steps=1", "trainer.precision=32-true"]


def redline(*words, cwd=None, code=0, timeout=180):
    done = subprocess.run([REDLINE, *map(str, words)], capture_output=True, text=True, cwd=cwd, timeout=timeout, stdin=subprocess.DEVNULL)
    assert done.returncode == code, (words, done.returncode, done.stdout[-2000:], done.stderr[-2000:])
    return done


def write_wav(path, seconds, pitch, rate=16000):
    with wave.open(str(path), "wb") as file:
        file.setnchannels(1), file.setsampwidth(2), file.setframerate(rate)
        file.writeframes(b"".join(struct.pack("<h", int(9000 * math.sin(2 * math.pi * pitch * i / rate))) for i in range(int(seconds * rate))))


@pytest.fixture(scope="module")
def mine(tmp_path_factory):
    """What a user brings: clips with a manifest, a table of sequences, folders of pictures."""
    home = tmp_path_factory.mktemp("mine")
    (home / "clips").mkdir()
    lines = []
    for i in range(6):
        write_wav(home / f"clips/clip{i}.wav", 1.2 + 0.1 * i, 200 + 40 * i)
        lines.append(json.dumps({"audio_filepath": f"clip{i}.wav", "duration": 1.2 + 0.1 * i}))
    (home / "clips/all.json").write_text("\n".join(lines) + "\n")
    sequences = [[3 + (i + j) % 50 for j in range(5 + i % 7)] for i in range(24)]
    pyarrow.parquet.write_table(pyarrow.table({"ids": sequences}), home / "mine.parquet")
    for label in ("cat", "dog"):
        (home / "pictures" / label).mkdir(parents=True)
        for i in range(4):
            Image.new("RGB", (40, 40), (40 * i, 90 if label == "cat" else 200, 20)).save(home / f"pictures/{label}/{i}.png")
    return home


@pytest.fixture(scope="module")
def speech_run(mine):
    redline("train", SPEECH, "--run-dir", "runs/speech", "model.train_ds.manifest_filepath=clips/all.json", "model.validation_ds.manifest_filepath=clips/all.json", *SMALL_SPEECH, cwd=mine)
    return mine / "runs/speech"


@pytest.fixture(scope="module")
def sequence_run(mine):
    redline("train", SEQUENCES, "--run-dir", "runs/vae", "model.train_ds.path=mine.parquet", "model.validation_ds.path=mine.parquet", "model.column=ids", *SMALL_SEQUENCES, cwd=mine)
    return mine / "runs/vae"


# 1. Own data.

def test_pictures_of_ones_own_train_in_one_line(mine):
    done = redline("train", PICTURES, "--dry-run", "model.train_ds.path=pictures", "model.validation_ds.path=pictures", "model.train_ds.batch_size=4", "model.train_ds.num_workers=0", cwd=mine)
    assert done.stdout


def test_columns_follow_the_models_column(mine, sequence_run):
    config = (sequence_run / "config.resolved.yaml").read_text()
    assert config.count("columns: [ids]") == 2, "train and validation"
    done = redline("train", SEQUENCES, "--dry-run", "model.train_ds.path=mine.parquet", "model.train_ds.columns=[ids]", *SMALL_SEQUENCES, cwd=mine, code=2)
    assert "model reads column 'tokens'" in done.stderr and "model.column" in done.stderr


def test_a_recipes_paths_are_relative_to_it_and_a_runs_are_found_from_anywhere(mine, sequence_run, tmp_path):
    (mine / "recipes").mkdir(exist_ok=True)
    (mine / "recipes/job.yaml").write_text(f"base: {SEQUENCES}\nmodel: {{column: ids, train_ds: {{path: ../mine.parquet}}, validation_ds: {{path: ../mine.parquet}}}}\n")
    for folder in (tmp_path, mine):
        redline("train", mine / "recipes/job.yaml", "--run-dir", tmp_path / f"run_{folder.name}", *SMALL_SEQUENCES, cwd=folder)
    one = redline("--json", "eval", sequence_run, cwd=tmp_path)
    assert json.loads(one.stdout)["samples"] == 24
    kept = (sequence_run / "config.resolved.yaml").read_text()
    assert str(mine / "mine.parquet") in kept
    # In a run whose config names a file beside it: relative to the run.
    copy = tmp_path / "copy"
    shutil.copytree(sequence_run, copy)
    shutil.copy(mine / "mine.parquet", copy / "beside.parquet")
    (copy / "config.resolved.yaml").write_text(kept.replace(str(mine / "mine.parquet"), "beside.parquet"))
    assert json.loads(redline("--json", "eval", copy, cwd="/").stdout)["metrics"] == json.loads(one.stdout)["metrics"]
    assert json.loads(redline("--json", "eval", copy, "--checkpoint", 3, cwd="/").stdout)["metrics"] == json.loads(one.stdout)["metrics"]
    assert "no checkpoint of that step; there are" in redline("eval", copy, "--checkpoint", 99, cwd="/", code=4).stderr


def test_a_missing_file_is_named_with_the_folder_that_was_searched(mine, tmp_path):
    done = redline("train", SPEECH, "--dry-run", "model.train_ds.manifest_filepath=nowhere.json", *SMALL_SPEECH, cwd=tmp_path, code=3)
    assert f"{tmp_path}/nowhere.json" in done.stderr and ".." not in done.stderr.replace("...", "")
    (tmp_path / "m.json").write_text(4 * (json.dumps({"audio_filepath": "lost.wav", "duration": 1.5}) + "\n"))
    done = redline("train", SPEECH, "--dry-run", "model.train_ds.manifest_filepath=m.json", *SMALL_SPEECH, cwd=tmp_path, code=3)
    assert "'lost.wav' in '" + os.path.realpath(tmp_path) in done.stderr


def make_tar(path, names, folder, mode="w"):
    with tarfile.open(path, mode) as archive:
        for name in names:
            archive.add(folder / name, name)


def test_most_of_a_manifest_missing_from_the_tars_is_an_error_unless_allowed(mine, tmp_path):
    make_tar(tmp_path / "audio_0.tar", ["clip0.wav", "clip1.wav"], mine / "clips")
    job = ["train", SPEECH, "--dry-run", f"model.train_ds.manifest_filepath={mine}/clips/all.json", "model.train_ds.is_tarred=true", "model.train_ds.tarred_audio_filepaths=audio_0.tar", *SMALL_SPEECH]
    done = redline(*job, cwd=tmp_path, code=3)
    assert "4 of 6 manifest entries (66.7 %) are not in the 1 tars" in done.stderr and "max_missing_fraction=0.67" in done.stderr
    assert "left out" in redline(*job, "model.train_ds.max_missing_fraction=0.67", cwd=tmp_path).stderr


@pytest.mark.parametrize("name", ["audio_0.tar", "audio_0.tar.gz", "audio_0.tgz"])
def test_a_gzip_tar_is_called_one(mine, tmp_path, name):
    make_tar(tmp_path / name, ["clip0.wav", "clip1.wav"], mine / "clips", "w:gz")
    done = redline("train", SPEECH, "--dry-run", f"model.train_ds.path={name}", *SMALL_SPEECH, cwd=tmp_path, code=3)
    assert "is compressed with gzip" in done.stderr and "gunzip" in done.stderr


# 2. Results one can use.

def test_embeddings_have_names_shapes_and_a_vector_that_pandas_reads(mine, speech_run, tmp_path):
    redline("predict", speech_run, mine / "clips/all.json", "--out", tmp_path / "e.parquet", cwd=tmp_path)
    table = pandas.read_parquet(tmp_path / "e.parquet")
    assert list(table["name"]) == [f"clip{i}.wav" for i in range(6)] and list(table["sample_id"]) == list(range(6))
    for _, row in table.iterrows():
        shape = [int(n) for n in row["encoded_shape"]]
        own = numpy.asarray(row["encoded"], dtype=numpy.float32).reshape(shape)
        assert shape[0] == 32 and shape[1] == row["encoded_lengths"] and own.any(axis=0).all(), "no padding"
        numpy.testing.assert_allclose(numpy.asarray(row["encoded_mean"]), own.mean(axis=1), rtol=2e-5, atol=1e-6)
    assert table["encoded_lengths"].nunique() > 1, "clips of different lengths"
    redline("predict", "speech", mine / "clips/all.json", "--out", tmp_path / "e.npy", cwd=mine)
    vectors = numpy.load(tmp_path / "e.npy")
    numpy.testing.assert_array_equal(vectors, numpy.stack(list(table["encoded_mean"])))
    assert (tmp_path / "e.names.txt").read_text().splitlines() == list(table["name"])
    redline("predict", speech_run, mine / "clips/all.json", "--out", tmp_path / "e.safetensors", cwd=tmp_path)
    with safe_open(tmp_path / "e.safetensors", "np") as file:
        assert json.loads(file.metadata()["names"]) == list(table["name"])
        numpy.testing.assert_array_equal(file.get_tensor("encoded_mean"), vectors)
    redline("predict", speech_run, mine / "clips/all.json", "--out", tmp_path / "e.csv", cwd=tmp_path, code=2)


def test_rows_of_a_table_are_named_by_file_and_row(mine, sequence_run, tmp_path):
    redline("predict", sequence_run, mine / "mine.parquet", "--out", tmp_path / "z.parquet", "--output", "mu", cwd=tmp_path)
    table = pandas.read_parquet(tmp_path / "z.parquet")
    assert table["name"][5] == "mine.parquet row 5" and list(table.columns) == ["name", "sample_id", "mu"] and len(table["mu"][0]) == 4
    done = redline("predict", sequence_run, mine / "mine.parquet", "--out", tmp_path / "z.parquet", "--output", "nu", cwd=tmp_path, code=2)
    assert "this task gives kl, logvar, mu" in done.stderr


def test_resume_by_name(mine, tmp_path):
    job = ["train", SEQUENCES, "--run-dir", tmp_path / "run", "model.train_ds.path=mine.parquet", "model.validation_ds.path=mine.parquet", "model.column=ids", *SMALL_SEQUENCES,
           "trainer.max_epochs=-1", "trainer.val_check_interval=1", "exp_manager.checkpoint_callback_params.every_n_train_steps=1", "exp_manager.checkpoint_callback_params.keep_last=9"]
    redline(*job, cwd=mine)
    # A save may be left out while the one before it is still written: any step that is there will do.
    done = redline(*job, "--resume", "77", cwd=mine, code=4)
    there = re.findall(r"\d+", done.stderr.split("no checkpoint of that step; there are")[1])
    done = redline(*job, "--resume", there[0], "trainer.max_steps=4", cwd=mine)
    assert f"at step {there[0]}" in done.stderr and "Stopped after 4 steps" in done.stderr
    assert "at step 4" in redline(*job, "--resume", "last", "trainer.max_steps=5", cwd=mine).stderr
    assert "Resuming from" in redline(*job, "--resume", "best", "trainer.max_steps=5", cwd=mine).stderr
    done = redline(*job[:2], "--run-dir", tmp_path / "none", *job[4:], "--resume", "best", cwd=mine, code=4)
    assert "has no checkpoint" in done.stderr


def test_weights_of_another_project_start_a_run(mine, sequence_run, tmp_path):
    import torch
    redline("convert", sequence_run, tmp_path / "w.safetensors", cwd=tmp_path)
    redline("convert", tmp_path / "w.safetensors", tmp_path / "w.pt", cwd=tmp_path)
    torch.save({"state_dict": torch.load(tmp_path / "w.pt"), "epoch": 3}, tmp_path / "w.ckpt")
    job = ["train", SEQUENCES, "model.train_ds.path=mine.parquet", "model.validation_ds.path=mine.parquet", "model.column=ids", *SMALL_SEQUENCES, "trainer.max_steps=1"]
    for i, word in enumerate([f"load_from={tmp_path}/w.pt", f"init_from_nemo_model={tmp_path}/w.ckpt"]):
        done = redline(*job, word, "load_strict=true", "--run-dir", tmp_path / f"run{i}", cwd=mine)
        assert "tensors converted" in done.stderr and "redline convert" in done.stderr
    (tmp_path / "bad.pt").write_bytes(b"no pickle")
    assert "bad.pt" in redline(*job, f"load_from={tmp_path}/bad.pt", "--run-dir", tmp_path / "x", cwd=mine, code=1).stderr


# 3. Words and numbers.

def test_every_metrics_file_has_the_time(sequence_run):
    rows = list(csv.DictReader((sequence_run / "metrics.csv").open()))
    times = [float(row["wall_time"]) for row in rows]
    assert times == sorted(times) and abs(times[-1] - time.time()) < 3600
    points = [json.loads(line) for line in (sequence_run / "metrics.jsonl").read_text().splitlines()[1:]]
    assert {p["step"] for p in points if p["name"] == "wall_time"} == {p["step"] for p in points}


def test_one_meaning_for_speed_and_memory(mine, sequence_run):
    done = redline("train", SEQUENCES, "--run-dir", "runs/words", "model.train_ds.path=mine.parquet", "model.validation_ds.path=mine.parquet", "model.column=ids", *SMALL_SEQUENCES,
                   "trainer.accumulate_grad_batches=2", cwd=mine)
    assert "steps/s" in done.stderr and "it/s" not in done.stderr and re.search(r"process \d", done.stderr) and "0 ns left" not in done.stderr
    text = redline("report", "words", cwd=mine).stdout.replace("\n", " ")
    assert "steps/s" in text and "peak tensor memory" in text and "iterations/s" not in text
    run = json.loads(redline("--json", "report", "words", cwd=mine).stdout)["runs"][0]
    assert run["micro_batches_per_second"] == pytest.approx(2 * run["steps_per_second"])
    points = [json.loads(line) for line in (mine / "runs/words/metrics.jsonl").read_text().splitlines()[1:]]
    assert any(p["name"] == "steps_per_second" for p in points)


def commands():
    names = re.findall(r"^  ([a-z]+) ", redline("--help").stdout.split("Subcommands:")[1], re.M)
    below = re.findall(r"^  ([a-z]+) ", redline("data", "--help").stdout.split("Subcommands:")[1].split("Examples")[0], re.M)
    return [[name] for name in names] + [["data", name] for name in below]


def test_every_command_explains_itself():
    seen = commands()
    assert len(seen) > 20
    schema = redline("options", "--markdown").stdout
    for words in seen:
        text = redline(*words, "--help").stdout
        examples = re.findall(r"^  (redline .*)$", text.split("Examples:")[1], re.M)
        assert len(examples) == 2 and all(" ".join(words) in example for example in examples), (words, text)
        for flag in re.findall(r" (--[a-z-]+)", " ".join(examples)):
            assert flag in text or flag == "--json" or f"`{flag}`" in schema or flag in ("--run-dir", "--batch_size") or words[-1] == "synth", (words, flag)
    text = redline("train", "--help").stdout
    for word in ("--run-dir", "--resume", "--new-run", "--load_from"):
        assert word in text
    assert "TEXT=last" in redline("eval", "--help").stdout and "RUN DATA [key=value" in redline("predict", "--help").stdout


def completed(tmp_path, *words):
    script = tmp_path / "completion.bash"
    if not script.exists():
        script.write_text(redline("options", "--completion", "bash").stdout)
    array = " ".join("'" + word + "'" for word in words)
    run = f"source {script}; redline() {{ {REDLINE} \"$@\"; }}; COMP_WORDS=({array}); COMP_CWORD={len(words) - 1}; _redline; printf '%s\\n' \"${{COMPREPLY[@]}}\""
    return subprocess.run(["bash", "--norc", "-c", run], capture_output=True, text=True, check=True, cwd=tmp_path).stdout.split()


def test_completion(tmp_path):
    assert completed(tmp_path, "redline", "re") == ["report"]
    assert set(completed(tmp_path, "redline", "report", "--h")) == {"--help", "--html"}
    assert set(completed(tmp_path, "redline", "data", "")) == {"order", "stats", "bench", "index", "tar", "synth"}
    assert completed(tmp_path, "redline", "data", "tar", "--num") == ["--num-shards"]
    assert set(completed(tmp_path, "redline", "train", str(SEQUENCES), "--preset", "")) == {"quick", "max-performance", "memory-limited", "debug"}
    assert completed(tmp_path, "redline", "train", "x.yaml", "trainer.prec") == ["trainer.precision=", "trainer.precision_strict="]
    assert completed(tmp_path, "redline", "train", "x.yaml", "precision", "=", "b") == ["bf16-mixed"]
    assert "--trainer.precision" in completed(tmp_path, "redline", "train", "x.yaml", "--trainer.pre")
    for shell in ("zsh", "fish"):
        assert "data" in redline("options", "--completion", shell).stdout


def test_the_man_page_is_well_formed():
    page = redline("options", "--man").stdout
    lines = page.splitlines()
    assert re.fullmatch(r'\.TH "REDLINE" 1 "" "redline [^"]+"', lines[0]), lines[0]
    assert lines[2] == "redline \\- makes deep\\-learning training fast, and proves it."
    known = {".TH", ".SH", ".SS", ".TP", ".B", ".BI", ".I", ".IR", ".RS", ".RE"}
    assert {line.split()[0] for line in lines if line.startswith(".")} <= known
    assert lines.count(".RS") == lines.count(".RE") > 5 and not any(line.startswith("'") for line in lines)
    assert "\\-\\-html" in page


def test_a_recipe_is_not_overwritten_silently(mine, sequence_run, tmp_path):
    (tmp_path / "mine.tuned.yaml").write_text("mine: 1\n")
    done = redline("tune", SEQUENCES, f"model.train_ds.path={mine}/mine.parquet", f"model.validation_ds.path={mine}/mine.parquet", "model.column=ids", *SMALL_SEQUENCES, "trainer.max_steps=50",
                   "--budget", "12s", "--out", "mine.tuned.yaml", cwd=tmp_path)
    assert "it is now 'mine.tuned.yaml.old'" in done.stderr and (tmp_path / "mine.tuned.yaml.old").read_text() == "mine: 1\n"


# 6. and 8. Beside training, and more of it.

def small_job(mine, run, *words):
    return redline("train", SEQUENCES, "--run-dir", run, "model.train_ds.path=mine.parquet", "model.validation_ds.path=mine.parquet", "model.column=ids", *SMALL_SEQUENCES, *words, cwd=mine)


def test_hooks_run_beside_the_run_and_cannot_harm_it(mine, tmp_path):
    hook = f"sh -c 'echo $REDLINE_HOOK $REDLINE_STEP >> {tmp_path}/said'"
    done = small_job(mine, tmp_path / "run", f"exp_manager.on_validation={hook}", f"exp_manager.on_end={hook}", "exp_manager.on_checkpoint=false-command-that-is-not-there")
    assert set((tmp_path / "said").read_text().split("\n")) >= {"validation 3", "end 3"}
    assert "on_checkpoint cannot be started" in done.stderr and "Stopped after 3 steps" in done.stderr
    assert "does not end" in redline("train", SEQUENCES, "--run-dir", tmp_path / "no", *SMALL_SEQUENCES, "exp_manager.on_end=echo 'x", cwd=mine, code=2).stderr


def test_the_mlflow_logger_follows_a_run(mine, tmp_path):
    small_job(mine, tmp_path / "run", "exp_manager.create_mlflow_logger=true", f"exp_manager.mlflow_logger_kwargs={{experiment_name: mine, tracking_uri: {tmp_path}/mlruns}}")
    experiments = [p for p in (tmp_path / "mlruns").iterdir() if (p / "meta.yaml").exists()]
    runs = [p for p in experiments[0].iterdir() if p.is_dir()]
    assert len(experiments) == 1 and len(runs) == 1
    lines = (runs[0] / "metrics/val_loss").read_text().splitlines()
    assert lines[-1].split()[2] == "3" and float(lines[-1].split()[1]) > 0 and (runs[0] / "params/trainer.max_steps").read_text() == "3"
    assert "status: 3" in (runs[0] / "meta.yaml").read_text()


def test_a_logger_that_cannot_work_is_a_warning(mine, tmp_path):
    done = small_job(mine, tmp_path / "run", "exp_manager.create_mlflow_logger=true", "exp_manager.mlflow_logger_kwargs={tracking_uri: http://127.0.0.1:9}")
    assert "The mlflow logger ended with exit code 1; the run is not touched by it. It said: loggers: http://127.0.0.1:9/api/2.0/mlflow/ cannot be reached" in done.stderr


def test_further_validation_sets(mine, tmp_path):
    small_job(mine, tmp_path / "run", "model.validation_ds.also={same: mine.parquet}")
    points = {p["name"]: p["value"] for p in map(json.loads, (tmp_path / "run/metrics.jsonl").read_text().splitlines()[1:])}
    assert points["val_loss/same"] == points["val_loss"] and "val_kl/same" in points
    assert json.loads(redline("--json", "eval", tmp_path / "run", cwd="/").stdout)["metrics"]["val_loss/same"] == points["val_loss"]
    done = redline("train", SEQUENCES, "--run-dir", tmp_path / "no", "model.train_ds.path=mine.parquet", "model.validation_ds.path=mine.parquet", "model.column=ids", *SMALL_SEQUENCES,
                   "model.validation_ds.also={Bad Name: mine.parquet}", cwd=mine, code=2)
    assert "lower-case letters" in done.stderr


@pytest.mark.parametrize("words", [["model.optim.name=lion", "model.optim.lr=1e-4"], ["model.optim.name=adafactor", "model.optim.lr=1e-2"], ["model.optim.sched={name: OneCycleLR}"],
                                   ["model.optim.sched={name: ExponentialLR, gamma: 0.5, decay_steps: 1}"]], ids=lambda words: words[0].split("=", 1)[1])
def test_more_optimisers_and_schedules_train_and_resume(mine, tmp_path, words):
    job = [*words, "~model.optim.sched.warmup_ratio" if "sched" not in words[0] else "seed=42", "trainer.max_steps=6", "trainer.max_epochs=-1"]
    small_job(mine, tmp_path / "whole", *job)
    small_job(mine, tmp_path / "parts", *job, "exp_manager.checkpoint_callback_params={every_n_train_steps: 1, keep_last: 9}")
    # A save may be left out while the one before it is still written: the first that is there will do.
    first = min(int(path.name[5:]) for path in (tmp_path / "parts/checkpoints").glob("step-*"))
    assert first < 6
    done = small_job(mine, tmp_path / "parts", *job, "exp_manager.checkpoint_callback_params={every_n_train_steps: 1, keep_last: 9}", "--resume", first)
    assert f"at step {first}" in done.stderr
    assert "6 steps: equal bit for bit" in redline("diff", tmp_path / "whole", tmp_path / "parts").stdout


def test_a_learning_rate_is_found(mine, tmp_path):
    done = redline("--json", "lr", SEQUENCES, "model.train_ds.path=mine.parquet", "model.validation_ds.path=mine.parquet", "model.column=ids", *SMALL_SEQUENCES, "--from", "1e-5", "--to", "1",
                   "--steps", "60", cwd=mine)
    answer = json.loads(done.stdout)
    rates = [point["lr"] for point in answer["points"]]
    assert rates == sorted(rates) and rates[0] == pytest.approx(1e-5) and 1e-5 < answer["steepest"] <= 1
    assert not (mine / "runs/sequence-vae").exists(), "nothing is left behind"
    assert "--from must be above 0" in redline("lr", SEQUENCES, "--from", "0", cwd=mine, code=2).stderr


# 5. Runs.

def test_runs_lists_what_is_there(mine, speech_run, sequence_run):
    text = redline("runs", cwd=mine).stdout.splitlines()
    assert text[0].split() == ["run", "state", "steps", "loss", "val_loss", "samples/s", "limit", "written"]
    line = next(line for line in text if line.startswith("vae"))
    assert line.split()[1:3] == ["finished", "3/3"]
    listed = json.loads(redline("--json", "runs", cwd=mine).stdout)["runs"]
    run = next(run for run in listed if run["name"] == "vae")
    assert run["task"] == "sequence_vae" and run["ended"] == "max_steps" and run["validation"]["val_loss"] > 0 and run["samples_per_second"] > 0
    by_name = [run["name"] for run in json.loads(redline("--json", "runs", "--sort", "name", cwd=mine).stdout)["runs"]]
    assert by_name == sorted(by_name)
    assert "no folder" in redline("runs", "nowhere", cwd=mine, code=3).stderr
    for words in (["verify", "vae"], ["diff", "vae", "vae"], ["convert", "vae", "by_name.safetensors"], ["doctor", "vae", "--blocks", "0"]):
        redline(*words, cwd=mine)
    assert "did you mean 'vae'" in redline("report", "vea", cwd=mine, code=3).stderr
    both = json.loads(redline("--json", "report", "vae", "speech", cwd=mine).stdout)["runs"]
    assert len(both) == 2


def test_runs_with_other_letters_stand_in_columns(tmp_path):
    for name in ("Übung–テスト", "plain-name-of-a-run"):
        run_records.make_run(tmp_path / "runs" / name, {"forward": 20.0, "backward": 40.0}, steps=30)
    lines = redline("runs", cwd=tmp_path).stdout.splitlines()
    at = [sum(1 + (unicodedata.east_asian_width(letter) == "W") for letter in line[:line.index("stopped")]) for line in lines[1:]]
    assert len(at) == 2 and at[0] == at[1] and lines[1].endswith((" now", " s ago"))


def test_a_thousand_runs_are_listed(sequence_run, tmp_path):
    for i in range(1000):
        shutil.copytree(sequence_run, tmp_path / f"runs/job/{i:04d}", ignore=shutil.ignore_patterns("checkpoints", "tensorboard"))
    listed = json.loads(redline("--json", "runs", cwd=tmp_path).stdout)["runs"]
    assert len(listed) == 1000 and all(run["step"] == 3 for run in listed)
