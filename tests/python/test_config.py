"""What is derived from a schema, judged by other tools: jsonschema, PyYAML, bash, groff."""
import json
import os
import pathlib
import shutil
import subprocess

import jsonschema
import pytest
import yaml

EXAMPLE = pathlib.Path(os.environ.get("REDLINE_BUILD", "build")) / "src" / "config" / "config_example"


def example(*words, check=True):
    return subprocess.run([str(EXAMPLE), *map(str, words)], capture_output=True, text=True, check=check)


@pytest.fixture(scope="module")
def validator():
    schema = json.loads(example("json-schema").stdout)
    jsonschema.Draft202012Validator.check_schema(schema)
    return jsonschema.Draft202012Validator(schema)


ACCEPTED = {
    "empty": "{}",
    "nemo": """
name: nest
model:
  sample_rate: 16000
  train_ds:
    manifest_filepath: ???
    sample_rate: ${model.sample_rate}
    batch_size: 8
    num_workers: auto
    max_duration: 60.0
  validation_ds: null
  encoder:
    _target_: nemo.collections.asr.modules.ConformerEncoder
    d_model: 512
    att_context_size: [-1, -1]
    att_contexts: [[1, 2], [3]]
  spec_augment: {freq_masks: 2}
  extra: {anything: [1, {x: null}]}
  optim:
    name: adamw
    lr: 1e-3
    betas: [0.9, 0.98]
    sched: {name: NoamAnnealing, warmup_steps: 25000, warmup_ratio: null}
trainer:
  devices: -1
  precision: 32
  strategy: ddp
  accelerator: auto
  logger: false
  max_steps: 1e5
exp_manager: {exp_dir: null, create_wandb_logger: false, wandb_logger_kwargs: {name: x}}
""",
    "aliases": """
use_amp: true
work-dir: /runs
runner: {max_iters: 100}
optimizer_config: {accumulative_counts: 4}
learning_rate: 0.1
model: {train_ds: {samples_per_gpu: 4, workers_per_gpu: 2, manifest_filepath: a.json}}
""",
    "units": "trainer: {save_every_seconds: 1h30m, max_buffer_bytes: 512MiB, limit_val_batches: 0.5}",
    "strategy map": "trainer: {strategy: {_target_: lightning.pytorch.strategies.DDPStrategy, static_graph: yes}}",
    "presets": "presets: {quick: {trainer.max_steps: 1}, words: [seed=3], none: null}",
}
REFUSED = {
    "unknown key": "trainer: {precison: 16}",
    "unknown section": "trainr: {}",
    "wrong type": "trainer: {max_steps: many}",
    "fraction": "trainer: {max_steps: 1.5}",
    "out of range": "model: {encoder: {n_layers: 0}}",
    "open end": "model: {encoder: {dropout: 1.0}}",
    "choice": "trainer: {precision: float8}",
    "null": "trainer: {max_steps: null}",
    "list item": "model: {encoder: {att_context_size: [a]}}",
    "list of lists": "model: {encoder: {att_contexts: [1]}}",
    "scalar for a map": "model: {encoder: big}",
    "target": "trainer: {strategy: {_target_: lightning.pytorch.strategies.FSDPStrategy}}",
    "target where none is": "model: {optim: {_target_: torch.optim.AdamW}}",
    "accepted key at another value": "trainer: {accelerator: tpu}",
    "boolean": "trainer: {detect_anomaly: 1}",
    "alias": "model: {train_ds: {samples_per_gpu: none}}",
}


def put(folder, text):
    path = folder / "x.yaml"
    path.write_text(text)
    return path


@pytest.mark.parametrize("name", ACCEPTED)
def test_schema_and_reader_accept(validator, tmp_path, name):
    errors = [e.message for e in validator.iter_errors(yaml.safe_load(ACCEPTED[name]))]
    assert not errors
    answer = example("dump", put(tmp_path, ACCEPTED[name]), check=False)
    assert answer.returncode == 0, answer.stderr


@pytest.mark.parametrize("name", REFUSED)
def test_schema_and_reader_refuse(validator, tmp_path, name):
    assert not validator.is_valid(yaml.safe_load(REFUSED[name]))
    answer = example("dump", put(tmp_path, REFUSED[name]), check=False)
    assert answer.returncode == 2
    assert len(answer.stderr.strip().splitlines()) == 1
    assert "x.yaml:1:" in answer.stderr


def test_dump_is_valid_and_equal_for_other_readers(validator, tmp_path):
    path = put(tmp_path, ACCEPTED["nemo"])
    dumped = yaml.safe_load(example("dump", path).stdout)
    assert not [e.message for e in validator.iter_errors(dumped)]
    assert dumped == json.loads(example("dump", "--json", path).stdout)
    assert dumped["trainer"]["precision"] == "32"
    assert dumped["model"]["optim"]["lr"] == 0.001
    assert dumped["model"]["train_ds"]["manifest_filepath"] == "???"


def test_schema_of_several_tasks():
    schema = json.loads(example("json-schema-tasks").stdout)
    jsonschema.Draft202012Validator.check_schema(schema)
    judge = jsonschema.Draft202012Validator(schema)
    assert judge.is_valid({"task": "other", "model": {"freq_masks": 1}})
    assert not judge.is_valid({"task": "other", "model": {"num_classes": 4}})
    assert judge.is_valid({"task": "speech_ssl", "model": {"num_classes": 4}})
    assert judge.is_valid({"model": {"num_classes": 4}})
    assert not judge.is_valid({"model": {"nonsense": 4}})


def completed(tmp_path, *words):
    script = tmp_path / "completion.bash"
    script.write_text(example("bash").stdout)
    line = " ".join(f"'{w}'" for w in words)
    run = f"source {script}; COMP_WORDS=({line}); COMP_CWORD={len(words) - 1}; _redline_example; printf '%s\\n' \"${{COMPREPLY[@]}}\""
    answer = subprocess.run(["bash", "--norc", "-c", run], capture_output=True, text=True, check=True, cwd=tmp_path)
    return answer.stdout.split()


def test_bash_completion(tmp_path):
    (tmp_path / "recipe.yaml").write_text("")
    assert completed(tmp_path, "redline-example", "t") == ["train", "tune"]
    assert "--trainer.precision" in completed(tmp_path, "redline-example", "train", "--trainer.pre")
    assert "--batch_size" in completed(tmp_path, "redline-example", "train", "--batch")
    assert completed(tmp_path, "redline-example", "train", "--precision", "bf") == ["bf16-mixed"]
    assert completed(tmp_path, "redline-example", "train", "trainer.precision", "=", "bf") == ["bf16-mixed"]
    assert completed(tmp_path, "redline-example", "train", "--pin_memory", "=", "") == ["false", "true"]
    # A boolean flag takes no word, so files are next.
    assert completed(tmp_path, "redline-example", "train", "--pin_memory", "rec") == ["recipe.yaml"]


def test_scripts_parse(tmp_path):
    for shell in ("bash", "zsh", "fish"):
        script = tmp_path / shell
        script.write_text(example(shell).stdout)
        if shutil.which(shell):
            subprocess.run([shell, "-n", str(script)], check=True)
    # What can be said without the shells themselves: zsh's quoting is bash's, fish has one command per line.
    subprocess.run(["bash", "-n", str(tmp_path / "zsh")], check=True)
    lines = (tmp_path / "fish").read_text().splitlines()
    assert "complete -c redline-example -n __fish_use_subcommand -f -a tune -d 'It\\'s faster.'" in lines
    for line in lines[1:]:
        assert line.startswith("complete -c redline-example ")
        assert line.replace("\\'", "").count("'") % 2 == 0, line


def test_man_page_formats():
    page = example("man").stdout
    assert page.startswith(".TH")
    if shutil.which("groff"):
        answer = subprocess.run(["groff", "-man", "-Tascii", "-P-c", "-P-bou", "-ww"], input=page, capture_output=True, text=True, check=True)
        assert answer.stderr == ""
        assert "--trainer.precision string" in answer.stdout
        assert "EXIT STATUS" in answer.stdout
