"""Sixty mistakes of a first hour: each gets its exit code and one sentence that names what to do, on stderr alone, and leaves nothing behind."""
import json
import os
import pathlib
import subprocess

import pyarrow
import pyarrow.parquet
import pytest
from PIL import Image

ROOT = pathlib.Path(__file__).resolve().parents[2]
REDLINE = os.environ.get("REDLINE", str(ROOT / "build/redline"))
VAE = str(ROOT / "recipes/sequence_vae.yaml")
NEST = str(ROOT / "recipes/nest_fast-conformer_small.yaml")
NET = str(ROOT / "recipes/convnext_small.yaml")
DRY = ["--dry-run"]


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    folder = tmp_path_factory.mktemp("mistakes")
    pyarrow.parquet.write_table(pyarrow.table({"ids": [[1, 2, 3]] * 8, "label": [1] * 8}), folder / "t.parquet")
    (folder / "words.yaml").write_text("trainer: {max_steps: many}\ntask: sequence_vae\n")
    (folder / "tabs.yaml").write_text("trainer:\n\tmax_steps: 3\n")
    (folder / "list.yaml").write_text("- a\n- b\n")
    (folder / "anchors.yaml").write_text("a: &x 1\nb: *x\n")
    (folder / "empty.yaml").write_text("")
    (folder / "unknown.yaml").write_text("task: bert\n")
    (folder / "bad.json").write_text('{"audio_filepath": "a.wav"\n')
    (folder / "empty.json").write_text("")
    (folder / "nofile.json").write_text(json.dumps({"duration": 2}) + "\n")
    (folder / "lost.json").write_text(8 * (json.dumps({"audio_filepath": "lost.wav", "duration": 2}) + "\n"))
    (folder / "text.wav").write_text("not audio at all")
    (folder / "text.json").write_text(8 * (json.dumps({"audio_filepath": "text.wav", "duration": 2}) + "\n"))
    (folder / "broken.parquet").write_bytes(b"PAR1 and nothing else")
    (folder / "x.tar").write_bytes(b"\x1f\x8b" + bytes(600))
    (folder / "flat").mkdir()
    Image.new("RGB", (32, 32)).save(folder / "flat/a.png")
    (folder / "norun").mkdir()
    (folder / "clips").mkdir()
    (folder / "w.safetensors").write_bytes(b"nonsense")
    return folder


MISTAKES = [
    # commands and flags
    (["trian", VAE], 2, "did you mean 'train'"),
    (["repotr", "x"], 2, "did you mean 'report'"),
    (["--jsno", "machine"], 2, "--jsno"),
    (["train"], 2, "Which job?"),
    (["train", "nowhere.yaml"], 2, "nowhere.yaml"),
    (["train", "flat"], 2, "flat"),
    (["data", "sats", VAE], 2, "did you mean 'stats'"),
    (["report"], 2, "Usage: redline report [OPTIONS] RUN...\nRun 'redline report --help'"),
    (["compare", "only-one"], 2, ""),
    (["eval"], 2, "run"),
    (["predict", "norun"], 2, "data"),
    (["predict", "norun", "t.parquet"], 2, "--out"),
    (["predict", "norun", "t.parquet", "--out", "e.csv"], 2, ".parquet, .safetensors or .npy"),
    (["predict", "norun", "t.parquet", "--out", "no/folder/e.npy"], 2, "no folder"),
    (["predict", "norun", "nothing.parquet", "--out", "e.npy"], 3, "nothing at 'nothing.parquet'"),
    (["options", "--completion", "tcsh"], 2, "tcsh"),
    (["runs", "nowhere"], 3, "no folder 'nowhere'"),
    (["lr", VAE, "--from", "1", "--to", "0.1"], 2, "--from"),
    (["convert", "only-one"], 2, "[nemo|torch|safetensors] IN OUT"),
    (["convert", "nowhere.pt", "w.safetensors"], 2, "nothing at 'nowhere.pt'"),
    (["convert", "nowhere", "w.safetensors"], 3, "no run 'nowhere'"),
    (["launch", "-n", "2", "--", "trian", VAE], 2, "not 'trian'"),
    (["doctor", "nowhere.yaml"], 2, "no file 'nowhere.yaml'"),
    (["doctor", "nowhere"], 3, "no run 'nowhere'"),
    (["diff", "nowhere", "norun"], 3, "no run 'nowhere'"),
    (["scale", "nowhere"], 3, "no run 'nowhere'"),
    (["machine", "--path", "/nowhere/at/all"], None, "/nowhere/at/all"),
    # recipes
    (["train", "words.yaml", *DRY], 2, "max_steps"),
    (["train", "tabs.yaml", *DRY], 2, "tabs.yaml:2"),
    (["train", "list.yaml", *DRY], 2, "list.yaml"),
    (["train", "anchors.yaml", *DRY], 2, "anchor"),
    (["train", "empty.yaml", *DRY], 2, "task"),
    (["train", "unknown.yaml", *DRY], 2, "bert"),
    (["train", VAE, "--preset", "quik", *DRY], 2, "did you mean 'quick'"),
    (["train", VAE, "trainer.max_stesp=3", *DRY], 2, "max_steps"),
    (["train", VAE, "trainer.max_steps=-7", *DRY], 2, "max_steps"),
    (["train", VAE, "trainer.max_steps=0", *DRY], 2, "nothing to train"),
    (["train", VAE, "trainer.precision=fp8", *DRY], 2, "bf16-mixed"),
    (["train", VAE, "trainer.accelerator=gpu", *DRY], 2, "sees none"),
    (["train", VAE, "trainer.accelerator=tpu", *DRY], 2, "must be one of"),
    (["train", VAE, "model.optim.name=adamm", *DRY], 2, "adam"),
    (["train", VAE, "model.optim.sched.name=sine", *DRY], 2, "must be one of"),
    (["train", VAE, "model.optim.lr=fast", *DRY], 2, "lr"),
    (["train", VAE, "model.d_model=30", *DRY], 2, "n_heads"),
    (["train", VAE, "model.train_ds.batch_size=0", *DRY], 2, "batch_size"),
    (["train", VAE, "trainer.memory_limit=lots", *DRY], 2, "8GiB"),
    (["train", VAE, "trainer.max_time=soon", *DRY], 2, "4h"),
    (["train", VAE, "seed=-1", *DRY], 2, "seed"),
    (["train", VAE, "--trace", "steps=9..3"], 2, "steps=FIRST..LAST"),
    (["train", VAE, "trainer.limit_val_batches=two", *DRY], 2, "limit_val_batches"),
    (["train", VAE, "model.train_ds.manifest_filepath=x.json", "model.train_ds.path=t.parquet", *DRY], 2, "only one can be used"),
    # data
    (["train", VAE, "model.train_ds.path=nowhere.parquet", *DRY], 3, "HOME/nowhere.parquet"),
    (["train", VAE, "model.train_ds.path=broken.parquet", *DRY], 3, "broken.parquet"),
    (["train", VAE, "model.train_ds.path=t.parquet", *DRY], 3, "'tokens' of 'HOME/t.parquet' does not exist. Usable columns: 'ids', 'label'. model.column (or columns) says which is read."),
    (["train", VAE, "model.train_ds.path=t.parquet", "model.train_ds.columns=[ids]", *DRY], 2, "model.column"),
    (["train", VAE, "model.train_ds.manifest_filepath=lost.json", *DRY], 2, "is for audio"),
    (["train", NEST, "model.train_ds.manifest_filepath=nowhere.json", *DRY], 3, "HOME/nowhere.json"),
    (["train", NEST, "model.train_ds.manifest_filepath=bad.json", *DRY], 3, "bad.json:1"),
    (["train", NEST, "model.train_ds.manifest_filepath=empty.json", *DRY], 3, "no entries"),
    (["train", NEST, "model.train_ds.manifest_filepath=clips", *DRY], 3, "clips' is a folder; expected a file with a line {\"audio_filepath\""),
    (["train", NEST, "model.train_ds.manifest_filepath=text.wav", *DRY], 3, "text.wav:1: not valid JSON: Invalid value. At character 2. This should be a file with a line {\"audio_filepath\""),
    (["train", NEST, "model.train_ds.path=clips", *DRY], 2, "manifest_filepath: a file with a line"),
    (["train", NEST, "model.train_ds.manifest_filepath=nofile.json", *DRY], 3, "audio_filepath"),
    (["train", NEST, "model.train_ds.manifest_filepath=lost.json", *DRY], 3, "'lost.wav' in 'HOME'"),
    (["train", NEST, "model.train_ds.manifest_filepath=text.json", *DRY], 3, "WAV, FLAC, MP3"),
    (["train", NEST, "model.train_ds.path=x.tar", *DRY], 3, "compressed with gzip"),
    (["train", NET, "model.train_ds.path=flat", *DRY], 3, "FOLDER/CLASS/name.jpg"),
    (["train", NET, "model.train_ds.path=nowhere", *DRY], 3, "nowhere"),
    # runs and weights
    (["eval", "norun"], 3, "no config.resolved.yaml"),
    (["report", "norun"], 3, "no run record"),
    (["report", "nowhere"], 3, "no run 'nowhere'"),
    (["verify", "nowhere"], None, "nowhere"),
    (["train", VAE, "load_from=nowhere.pt", "--run-dir", "never"], 4, "no weights at"),
    (["train", VAE, "load_from=w.safetensors", "--run-dir", "never"], 4, "w.safetensors"),
    (["train", VAE, "--resume", "nothing", "--run-dir", "never"], 4, "nothing"),
    (["train", VAE, "--resume", "best", "--run-dir", "never"], 4, "no checkpoint"),
]


def test_usage_errors_are_json_where_logs_are(home):
    done = subprocess.run([REDLINE, "--log-format", "json", "compare", "one"], capture_output=True, text=True, cwd=home)
    assert done.returncode == 2 and "At least 2" in json.loads(done.stderr)["message"]


def test_help_is_a_word_too(home):
    for words, said in ((["help"], "Subcommands:"), (["help", "data", "stats"], "Usage: redline data stats")):
        done = subprocess.run([REDLINE, *words], capture_output=True, text=True, cwd=home)
        assert done.returncode == 0 and said in done.stdout and done.stderr == ""


def test_chaos_of_a_mistake_keeps_its_code(home):
    done = subprocess.run([REDLINE, "chaos", VAE, "--kills", "1", "trainer.max_stesp=3"], capture_output=True, text=True, cwd=home)
    assert done.returncode == 2 and "did you mean 'max_steps'" in done.stderr


def test_there_are_sixty():
    assert len(MISTAKES) >= 60


@pytest.mark.parametrize("words, code, said", MISTAKES, ids=[" ".join(pathlib.Path(w).name for w in words) for words, _, _ in MISTAKES])
def test_a_mistake_gets_one_sentence(home, words, code, said):
    before = {path for path in home.rglob("*") if ".cache" not in path.parts}
    done = subprocess.run([REDLINE, *words], capture_output=True, text=True, cwd=home, timeout=120, stdin=subprocess.DEVNULL)
    if code is None:
        assert done.returncode != 0
    else:
        assert done.returncode == code, (done.returncode, done.stderr)
    assert said.replace("HOME", os.path.realpath(home)) in done.stderr, done.stderr
    assert done.stderr.count("error:") == 1 and done.stdout == "" and "\x1b" not in done.stderr
    assert "terminate" not in done.stderr and "what()" not in done.stderr
    left = {path for path in home.rglob("*") if ".cache" not in path.parts} - before
    assert not {path for path in left if not path.name.endswith((".redline.idx", ".redline.durations"))}, left
