"""The tuner as a process: what it writes, what a card saves, and one sentence for each thing that can be wrong."""
import json
import os
import pathlib
import signal
import subprocess
import time

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
REDLINE = os.environ.get("REDLINE", str(ROOT / "build/redline"))
RECIPE = """
task: sequence_vae
name: tiny
seed: 3
model:
  vocab_size: 64
  d_model: 32
  n_heads: 2
  d_ff: 64
  n_encoder_layers: 1
  n_decoder_layers: 1
  latent_dim: 4
  max_sequence_length: 64
  train_ds:
    synth: {kind: sequences, num: 400, seed: 1, vocab_size: 64, median_length: 20, max_length: 64}
    columns: [tokens]
    batch_size: 4
    num_workers: 0
    shuffle: true
    max_sequence_length: 64
    cache_dir: CACHE
  validation_ds:
    synth: {kind: sequences, num: 400, seed: 1, vocab_size: 64, median_length: 20, max_length: 64}
    columns: [tokens]
    batch_size: 16
    num_workers: 0
    max_sequence_length: 64
    cache_dir: CACHE
  optim: {name: adamw, lr: 1.0e-3}
trainer: {max_steps: 40, accumulate_grad_batches: 4, val_check_interval: 80, limit_val_batches: 1, enable_progress_bar: false}
"""


def run(folder, *words, code=0):
    done = subprocess.run([REDLINE, *words], capture_output=True, text=True, cwd=folder, timeout=300)
    assert done.returncode == code, (words, done.returncode, done.stdout[-2000:], done.stderr[-2000:])
    return done


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tune")
    (folder / "job.yaml").write_text(RECIPE.replace("CACHE", str(folder / "cache")))
    return folder


@pytest.fixture(scope="module")
def tuned(folder):
    return json.loads(run(folder, "--json", "tune", "job.yaml", "--budget", "12s", "--out", "tuned.yaml", "--html", "page.html").stdout)


def test_the_answer_has_ledger_certificate_and_recipe(folder, tuned):
    card = tuned["card"]
    assert card["format"] == "redline.tune_card" and not tuned["from_card"]
    verdicts = {entry["verdict"] for entry in card["ledger"]["entries"]}
    assert verdicts <= {"faster", "no effect", "slower here", "undecided", "not measurable here", "not tried", "failed"}
    fields = {entry["field"]: entry for entry in card["ledger"]["entries"]}
    assert fields["pin_memory"]["verdict"] == "not measurable here"
    assert fields["num_buckets"]["verdict"] == "not tried" and "--allow order" in fields["num_buckets"]["reason"]
    kept = [entry for entry in card["ledger"]["entries"] if entry["in_best"]]
    assert not any(entry["verdict"] in ("failed", "slower here") for entry in kept)
    # What had no race of its own was raced as part of the best, and the ledger says so.
    assert not any(entry["verdict"] == "not tried" for entry in kept)
    assert all(entry["reason"] for entry in card["ledger"]["entries"] if entry["verdict"] == "undecided")  # what is still possible
    assert card["certificate"]["kind"] in ("identical", "within noise")
    assert card["peak_tensor_bytes"] > 0
    assert card["ledger"]["best_samples_per_second"] > 0
    check_intervals(card["ledger"]["entries"])
    assert "<svg" in (folder / "page.html").read_text()


def check_intervals(entries):
    """Every figure lies within its interval; how many there are."""
    figures = [e for entry in entries for e in (entry["add_one_in"], entry["leave_one_out"]) if e]
    assert all(e["interval"]["low"] <= e["ratio"] <= e["interval"]["high"] for e in figures)
    return len(figures)


def test_a_switch_that_stands_alone_is_raced_alone(folder):
    # The others are typed and so kept; micro-batches are left, whose first race is against the reference.
    words = ("model.train_ds.num_workers=0", "model.train_ds.cache=none", "trainer.val_check_interval=80")
    card = json.loads(run(folder, "--json", "tune", "job.yaml", "--fresh", "--budget", "40s", "--card", "alone.json", "--out", "alone.yaml", *words).stdout)["card"]
    raced = [entry for entry in card["ledger"]["entries"] if entry["measured"]]
    assert raced and {entry["field"] for entry in raced} <= {"micro_batch_size"}
    assert check_intervals(raced) >= 1
    assert all(entry["prediction_error_points"] is not None for entry in raced)


def test_the_tuned_recipe_trains(folder, tuned):
    text = (folder / "tuned.yaml").read_text()
    assert text.startswith("# Written by `redline tune`")
    for path_and_value in tuned["card"]["values"]:
        assert "tuned" in text, path_and_value
    run(folder, "train", "tuned.yaml", "--run-dir=trained")
    assert (folder / "trained/steps.bin").exists()


def test_the_same_question_again_costs_nothing(folder, tuned):
    begin = time.monotonic()
    again = json.loads(run(folder, "--json", "tune", "job.yaml", "--budget", "12s", "--out", "again.yaml").stdout)
    assert again["from_card"] and again["card"] == tuned["card"]
    assert time.monotonic() - begin < 10  # seconds of process start on a loaded machine; the bar is in bench/


def test_a_card_of_another_machine_is_checked_again(folder, tuned):
    card = dict(tuned["card"])
    card["fingerprint"] = dict(card["fingerprint"], machine="something else")
    (folder / "foreign.json").write_text(json.dumps(card))
    done = run(folder, "--json", "tune", "job.yaml", "--budget", "12s", "--card", "foreign.json", "--out", "foreign.yaml")
    assert "comes from another machine" in done.stderr
    answer = json.loads(done.stdout)
    assert not answer["from_card"] and answer["card"]["fingerprint"]["machine"] != "something else"
    if answer["rechecked"]:  # otherwise it did not hold here and was tuned anew
        assert answer["card"]["values"] == card["values"] and answer["card"]["certificate"]["kind"] in ("identical", "within noise")
        assert answer["card"]["break_even"] != card["break_even"]


def test_a_card_that_fails_here_is_an_answer_not_an_end(folder, tuned):
    card = dict(tuned["card"])
    card["fingerprint"] = dict(card["fingerprint"], machine="something else", request="allow order memory=0")
    card["values"] = [{"field": "model.train_ds.is_tarred", "value": "true"}]  # bound, but there are no tars
    (folder / "failing.json").write_text(json.dumps(card))
    done = run(folder, "--json", "tune", "job.yaml", "--budget", "12s", "--allow", "order", "--card", "failing.json", "--out", "failing.yaml")
    assert "is_tarred" in done.stderr and "tuned anew" in done.stderr
    assert json.loads(done.stdout)["card"]["fingerprint"]["machine"] != "something else"


def test_a_card_of_another_version_is_not_used(folder, tuned):
    card = dict(tuned["card"])
    card["fingerprint"] = dict(card["fingerprint"], versions="redline 0.0")
    (folder / "old.json").write_text(json.dumps(card))
    done = run(folder, "--json", "tune", "job.yaml", "--budget", "12s", "--card", "old.json", "--out", "old.yaml")
    assert "made by another version" in done.stderr and "tuned anew" in done.stderr
    (folder / "broken.json").write_text("{")
    done = run(folder, "--json", "tune", "job.yaml", "--budget", "12s", "--card", "broken.json", "--out", "broken.yaml")
    assert not json.loads(done.stdout)["from_card"]


def forged(folder, tuned, values, name="forged.json", **fingerprint):
    card = dict(tuned["card"], values=[{"field": field, "value": value} for field, value in values.items()])
    card["fingerprint"] = dict(card["fingerprint"], **fingerprint)
    (folder / name).write_text(json.dumps(card))
    return name


@pytest.mark.parametrize("values, named", [
    ({"exp_manager.run_dir": "elsewhere"}, "exp_manager.run_dir"),
    ({"load_from": "evil.safetensors"}, "load_from"),
    ({"model.train_ds.num_workers": "0", "seed": "9"}, "seed"),
    ({"name": "other"}, "name"),
    ({"model.optim.lr": "1"}, "model.optim.lr"),
    ({"preset": "fast"}, "preset"),
    ({"trainer.max_steps": "1"}, "trainer.max_steps"),  # follows a batch, but there is none
    ({"trainer.precision_strict": "true"}, "trainer.precision_strict"),
    ({"model.train_ds.batch_size": "1"}, "--allow optimisation"),
    ({"trainer.precision": "bf16-mixed"}, "--allow numerics"),
    ({"model.train_ds.use_bucketing": "true"}, "--allow order"),
    ({"model.train_ds.num_workers": "many"}, "num_workers"),
    ({"model.train_ds.num_workers": "65"}, "num_workers"),
])
def test_a_card_sets_only_what_a_tuner_may_move(folder, tuned, values, named):
    name = forged(folder, tuned, values)
    done = run(folder, "tune", "job.yaml", "--budget", "0.001s", "--card", name, "--out", "forged.yaml", code=2)
    assert "is not used" in done.stderr and named in done.stderr and "tuned anew" in done.stderr and "too short" in done.stderr, done.stderr
    assert not (folder / "forged.yaml").exists()


def test_what_a_tuner_may_move_a_card_sets(folder, tuned):
    name = forged(folder, tuned, {"model.train_ds.prefetch_factor": "3", "trainer.log_every_n_steps": "7"})
    assert json.loads(run(folder, "--json", "tune", "job.yaml", "--budget", "12s", "--card", name, "--out", "forged.yaml").stdout)["from_card"]
    # Twice the batch: the counts that follow from it are part of a card, and only with the values they should have.
    follows = {"model.train_ds.batch_size": "8", "model.train_ds.micro_batch_size": "8", "trainer.val_check_interval": "40", "trainer.max_steps": "20",
               "model.optim.scale_lr": "sqrt", "model.optim.base_batch_size": "16"}
    words = ["tune", "job.yaml", "--allow", "optimisation", "--card"]
    name = forged(folder, tuned, follows, request="allow optimisation memory=0")
    assert json.loads(run(folder, "--json", *words, name, "--budget", "12s", "--out", "forged.yaml").stdout)["from_card"]
    name = forged(folder, tuned, dict(follows, **{"model.optim.base_batch_size": "1"}), request="allow optimisation memory=0")
    done = run(folder, *words, name, "--budget", "0.001s", code=2)
    assert "sets 'model.optim.base_batch_size' to 1; 16 would follow" in done.stderr, done.stderr


def test_a_card_that_is_no_card_is_passed_over(folder, tuned):
    (folder / "large.json").write_text(json.dumps(tuned["card"]) + " " * (17 << 20))
    assert "larger than the limit" in run(folder, "tune", "job.yaml", "--budget", "0.001s", "--card", "large.json", code=2).stderr
    os.mkfifo(folder / "pipe.json")
    assert "is not a file" in run(folder, "tune", "job.yaml", "--budget", "0.001s", "--card", "pipe.json", code=2).stderr


def test_words_of_a_card_stay_comments(folder, tuned):
    name = forged(folder, tuned, {})
    card = json.loads((folder / name).read_text())
    card["created"] = "then\nload_from: evil.safetensors\n#"
    (folder / name).write_text(json.dumps(card))
    run(folder, "tune", "job.yaml", "--budget", "12s", "--card", name, "--out", "comment.yaml")
    assert not any(line.startswith("load_from: evil") for line in (folder / "comment.yaml").read_text().splitlines())


def test_a_race_without_an_answer_fails(folder):
    words = ["race", "job.yaml", "--blocks", "1", "--turn", "0.1s", "--with"]
    done = run(folder, *words, "trainer.precision=nonsense", code=1)
    assert "failed: trainer.precision=nonsense" in done.stdout and "None of the settings could be raced" in done.stderr
    run(folder, *words, "trainer.precision=nonsense", "--with", "model.train_ds.prefetch_factor=3")


@pytest.mark.parametrize("before, after", [
    ("lr: 1.0e-3", "lr: 1.0e-3, betas: [0.9, 0.95]"),  # a list
    ("trainer: {", "exp_manager: {ema: {enable: true}}\ntrainer: {"),
])
def test_another_job_is_another_question(folder, tuned, before, after):
    text = (folder / "job.yaml").read_text()
    assert before in text
    (folder / "other.yaml").write_text(text.replace(before, after))
    (folder / "other.json").write_text(json.dumps(tuned["card"]))
    done = run(folder, "tune", "other.yaml", "--budget", "0.001s", "--card", "other.json", code=2)
    assert "belongs to another job" in done.stderr and "too short" in done.stderr, done.stderr


def test_train_with_tune_uses_the_card_and_reports_it(folder, tuned):
    done = run(folder, "train", "job.yaml", "--tune", "12s", "--run-dir=both")
    assert "From the tune card" in done.stderr  # where a run is written to asks no other question
    assert (folder / "both/tune_card.json").exists()
    page = run(folder, "report", "both")
    assert "Tuning cost" in page.stdout, done.stderr


def test_a_trial_that_killed_the_process_counts_as_failed(folder, tuned):
    setting = "model.train_ds.micro_batch_size=16"
    (folder / "killed.json.running").write_text(setting)
    done = run(folder, "--json", "tune", "job.yaml", "--budget", "12s", "--card", "killed.json", "--out", "killed.yaml")
    assert "counts as failed" in done.stderr
    entries = json.loads(done.stdout)["card"]["ledger"]["entries"]
    failed = [e for e in entries if e["field"] == "micro_batch_size" and e["to"] == "16"]
    assert failed[0]["verdict"] == "failed" and "killed" in failed[0]["reason"]


def test_a_job_that_does_not_fit_is_cut_and_the_largest_batch_is_named(folder):
    # The smallest limit that one sample fits into is below what four need.
    limit = 200_000
    while True:
        done = subprocess.run([REDLINE, "--json", "tune", "job.yaml", "--budget", "12s", "--fresh", "--memory", f"{limit}B", "--card", "small.json", "--out",
                               "small.yaml"], capture_output=True, text=True, cwd=folder, timeout=120)
        if done.returncode == 0:
            break
        assert "single sample" in done.stderr or "first step" in done.stderr, done.stderr
        limit = int(1.2 * limit)
    card = json.loads(done.stdout)["card"]
    values = {v["field"]: v["value"] for v in card["values"]}
    assert int(values["model.train_ds.micro_batch_size"]) < 4, values
    assert any("is the reference" in note for note in card["notes"])
    assert card["largest_batch"]["rows"] < 4 and card["largest_batch"]["peak_bytes"] <= limit and not card["largest_batch"]["time_ended"]
    run(folder, "train", "small.yaml", "--run-dir=small", f"trainer.memory_limit={limit}")
    assert "guard." not in (folder / "small/events.jsonl").read_text()  # it really fits


def test_stopped_or_killed_it_leaves_nothing_false_behind(folder):
    command = [REDLINE, "--json", "tune", "job.yaml", "--budget", "20s", "--fresh", "--card", "stopped.json", "--out", "stopped.yaml"]
    for signum, code in ((signal.SIGINT, 75), (signal.SIGKILL, -signal.SIGKILL)):
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=folder) as process:
            for line in process.stderr:
                if line.startswith("["):  # its first blocks
                    process.send_signal(signum)
                    break
            rest = process.stderr.read()
            assert process.wait(timeout=60) == code, rest
        assert not (folder / "stopped.json").exists() and not (folder / "stopped.yaml").exists()
        assert ("not proved" in rest) == (code == 75)
    again = json.loads(run(folder, *command[1:3], "job.yaml", "--budget", "12s", *command[6:]).stdout)["card"]
    assert sum(entry["verdict"] == "failed" for entry in again["ledger"]["entries"]) <= 1  # the one that was running


@pytest.mark.parametrize("words, code, sentence", [
    (["--budget", "soon"], 2, "A budget is a time"),
    (["--budget", "12s", "--allow", "everything"], 2, "--allow takes numerics, order and optimisation"),
    (["--budget", "12s", "--memory", "lots"], 2, "--memory takes a size"),
    (["--budget", "0.001s", "--fresh"], 2, "is too short"),
    (["--budget", "12s", "--memory", "100KB", "--fresh"], 2, "--memory 97.7 KiB"),
    (["--budget", "12s", "model.train_ds.synth.vocab_size=4000"], None, "fails at its first step"),
])
def test_bad_input_gets_one_sentence(folder, words, code, sentence):
    done = subprocess.run([REDLINE, "tune", "job.yaml", *words], capture_output=True, text=True, cwd=folder, timeout=120)
    assert done.returncode == code if code is not None else done.returncode != 0, done.stderr
    assert sentence in done.stderr, done.stderr


def test_race_compares_named_settings(folder):
    rows = json.loads(run(folder, "--json", "race", "job.yaml", "--with", "model.train_ds.micro_batch_size=16", "--with",
                          "trainer.precision=nonsense", "--blocks", "2", "--turn", "0.1s").stdout)["settings"]
    assert rows[0]["ratio"] > 0 and len(rows[0]["seconds"]) == 2
    assert rows[1]["failure"] and "ratio" not in rows[1]


def test_a_named_setting_stands_above_what_is_typed(folder):
    """A rate typed for both sides must not undo the rate that is to be judged: a training that learns nothing was certified."""
    said = run(folder, "--json", "certify", "job.yaml", "model.optim.lr=0.01", "--steps", "60", "--pairs", "3", "--with", "model.optim.lr=0 model.optim.sched.min_lr=0",
               "--with", "model.optim.lr=0.01").stdout
    stuck, same = (row["certificate"] for row in json.loads(said)["settings"])
    assert stuck["paired"]["difference"] > 0 and stuck["kind"] != "not worse"
    assert same["paired"]["difference"] == 0
