"""The front door: exit codes, streams, JSON, and what bad input gets: one sentence, nothing half written."""
import json
import os
import pathlib
import subprocess
import time

import jsonschema
import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
REDLINE = os.environ.get("REDLINE", str(ROOT / "build/redline"))
RECIPE = str(ROOT / "recipes/sequence_vae.yaml")


def redline(*words, cwd=None, env=None, timeout=120):
    return subprocess.run([REDLINE, *map(str, words)], capture_output=True, text=True, cwd=cwd, timeout=timeout, env={**os.environ, **(env or {})}, stdin=subprocess.DEVNULL)


def test_version_names_all_three():
    done = redline("--version")
    assert done.returncode == 0 and "redline" in done.stdout and "LibTorch 2.13" in done.stdout and "build" in done.stdout


def test_help_lists_the_commands():
    done = redline("--help")
    assert done.returncode == 0
    for command in ("train", "machine", "options", "probe", "report", "compare", "verify", "diff", "convert"):
        assert command in done.stdout, command


@pytest.mark.parametrize("words", [["frobnicate"], ["--frobnicate"], ["train"], ["compare", "only-one"]])
def test_usage_errors_exit_2(words):
    done = redline(*words)
    assert done.returncode == 2, done.stderr
    assert done.stdout == "" and done.stderr


def test_a_mistyped_command_is_answered_with_the_one_that_was_meant():
    done = redline("trian", "job.yaml")
    assert done.returncode == 2 and "There is no command 'trian'; did you mean 'train'?" in done.stderr
    assert "did you mean" not in redline("qqqqqqqq").stderr


def test_machine_answers_json_on_stdout_only():
    done = redline("--json", "machine", "--quick")
    assert done.returncode == 0, done.stderr
    facts = json.loads(done.stdout)
    assert facts["schema_version"] >= 1 and facts["allowed_cpus"] >= 1


def bad_config(tmp_path, text, *words):
    path = tmp_path / "job.yaml"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    done = redline("train", path, "--dry-run", *words, cwd=tmp_path)
    assert done.returncode == 2, (done.returncode, done.stderr)
    assert "\x1b" not in done.stderr
    return done.stderr


@pytest.mark.parametrize("text, says", [
    (b"\x00\x01\x02\xff binary", "job.yaml"),
    ("task: sequence_vae\ntrainer: {precison: 32}\n", "precision"),
    ("task: sequence_vae\ntrainer: {max_steps: many}\n", "max_steps"),
    ("task: sequence_vae\ntrainer: {log_every_n_steps: -7}\n", "log_every_n_steps"),
    ("task: sequence_vae\ntask: sequence_vae\n", "twice|duplicate|Duplicate"),
    ("task: sequence_vae\na: ${b}\nb: ${a}\n", "a"),
    ("task: nonsense\n", "speech_ssl"),
    ("a: &x [1, 2]\nb: *x\n", "anchor|alias"),
    ("x" * (10 << 20), "1 MiB|1.0 MiB|large"),
    ("a: " + "[" * 500 + "]" * 500 + "\n", "deep|depth|nest"),
])
def test_bad_configs_are_named(tmp_path, text, says):
    stderr = bad_config(tmp_path, text)
    assert any(word in stderr for word in says.split("|")), stderr


def test_missing_and_unreadable_files(tmp_path):
    done = redline("train", tmp_path / "none.yaml")
    assert done.returncode == 2 and "none.yaml" in done.stderr
    done = redline("train", tmp_path)
    assert done.returncode == 2


def test_control_characters_do_not_reach_the_terminal(tmp_path):
    done = redline("train", str(tmp_path / "a\x1b[31mb.yaml"))
    assert done.returncode == 2 and "\x1b" not in done.stderr


def test_option_documents_are_derived():
    for form in ("--markdown", "--man", "--json-schema"):
        done = redline("options", form)
        assert done.returncode == 0 and "precision" in done.stdout, form
    for shell in ("bash", "zsh", "fish"):
        done = redline("options", "--completion", shell)
        assert done.returncode == 0 and "redline" in done.stdout


def test_the_json_schema_is_one_and_judges_recipes():
    import yaml
    schema = json.loads(redline("options", "--json-schema").stdout)
    validator = jsonschema.Draft202012Validator
    validator.check_schema(schema)
    for recipe in sorted((ROOT / "recipes").glob("*.yaml")):
        errors = list(validator(schema).iter_errors(yaml.safe_load(recipe.read_text())))
        assert not errors, (recipe.name, errors[0].message)
    wrong = yaml.safe_load((ROOT / "recipes/sequence_vae.yaml").read_text())
    wrong.setdefault("trainer", {})["precision"] = {"not": "a precision"}
    assert list(validator(schema).iter_errors(wrong))


@pytest.mark.parametrize("form, path", [("--markdown", "docs/options.md"), ("--metrics", "docs/metrics.md")])
def test_generated_documents_are_not_stale(form, path):
    assert redline("options", form).stdout == (ROOT / path).read_text(), f"{path} is stale: run 'make docs'"


def test_guides_page_is_not_stale():
    done = subprocess.run(["python3", ROOT / "tools/guides_page"], capture_output=True, text=True)
    assert done.stdout == (ROOT / "docs/guides.md").read_text(), "docs/guides.md is stale: run 'make docs'"


def test_words_may_stand_in_any_order():
    plain = redline("train", RECIPE, "--batch_size", "3", "--print-config")
    for words in (["train", "--batch_size", "3", RECIPE, "--print-config"], ["-q", "train", "--batch_size=3", "--print-config", RECIPE]):
        done = redline(*words)
        assert done.returncode == 0, done.stderr
        assert [line.split("#")[0] for line in done.stdout.splitlines()] == [line.split("#")[0] for line in plain.stdout.splitlines()]
    assert json.loads(redline("train", RECIPE, "--print-config", "--json").stdout)["trainer"]


def test_dry_run_writes_nothing(tmp_path):
    done = redline("train", RECIPE, "--dry-run", "--run-dir", tmp_path / "run", "model.train_ds.synth.num=200")
    assert done.returncode == 0, done.stderr
    assert not (tmp_path / "run").exists()


def test_a_run_directory_that_cannot_be_written(tmp_path):
    (tmp_path / "file").write_text("not a directory")
    done = redline("train", RECIPE, "trainer.max_steps=1", "--num_workers", "1", "--run-dir", tmp_path / "file" / "run", "model.train_ds.synth.num=200")
    assert done.returncode in (2, 7) and "run" in done.stderr
