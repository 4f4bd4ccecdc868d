"""Compiled steps as a user runs them: the same training, a cache that is never stale, and every way in which there is no compiled step."""
import json
import os
import pathlib
import signal
import subprocess
import time

import numpy
import pytest
import safetensors.numpy

import lss_job
from run_records import read_steps

ROOT = pathlib.Path(__file__).resolve().parents[2]
REDLINE = os.environ.get("REDLINE", str(ROOT / "build/redline"))
SLOW = pytest.mark.skipif(os.environ.get("REDLINE_SLOW") != "1", reason="minutes of compiling: REDLINE_SLOW=1")
SYNTH = "{kind: images, num: 160, num_validation: 16, seed: 1, num_classes: 6, width: 32, height: 32}"
CONVNEXT = [ROOT / "recipes/convnext_small.yaml", "model.depths=[1,1]", "model.dims=[8,16]", "model.image_size=32", f"model.train_ds.synth={SYNTH}",
            f"model.validation_ds.synth={SYNTH}", "model.train_ds.batch_size=8", "model.train_ds.num_workers=1", "model.validation_ds.batch_size=8",
            "trainer.intra_op_threads=1", "trainer.enable_progress_bar=false", "trainer.max_epochs=1", "trainer.max_steps=20"]


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    """One cache for all tests that do not look at the cache itself."""
    return tmp_path_factory.mktemp("cache")


def redline(*words, cache, code=0, timeout=900, **environment):
    done = subprocess.run([REDLINE, *map(str, words)], capture_output=True, text=True, timeout=timeout, stdin=subprocess.DEVNULL,
                          env={**os.environ, "XDG_CACHE_HOME": str(cache), **environment})
    assert done.returncode == code, (words, done.returncode, done.stdout[-2000:], done.stderr[-3000:])
    return done


def events(run, kind):
    lines = [json.loads(line) for line in (run / "events.jsonl").read_text().splitlines()]
    return [line["fields"] for line in lines if line.get("kind") == kind]


def train(job, run, cache, *words, **more):
    done = redline("train", *job, *words, "--run-dir", run, cache=cache, **more)
    return [row["loss"] for row in read_steps(run / "steps.bin")], done


def both_ways(job, folder, cache, *words):
    eager, _ = train(job, folder / "eager", cache, "trainer.compile=false", *words)
    compiled, _ = train(job, folder / "compiled", cache, "trainer.compile=true", *words)
    assert not events(folder / "compiled", "compile.refused"), events(folder / "compiled", "compile.refused")
    assert len(events(folder / "compiled", "compile.switch")) >= 1
    assert len(eager) == len(compiled) >= 6
    return numpy.array(eager), numpy.array(compiled)


def test_convnext_trains_alike_and_keeps_its_package(tmp_path, home):
    for name, words in (("plain", []), ("drop_path", ["model.drop_path_rate=0.3"])):
        (tmp_path / name).mkdir()
        eager, compiled = both_ways(CONVNEXT, tmp_path / name, home, *words)
        numpy.testing.assert_allclose(compiled, eager, rtol=1e-4)
    assert len(list((home / "redline/steps").glob("*/step.pt2"))) == 2  # another model, another package
    _, again = train(CONVNEXT, tmp_path / "again", home, "trainer.compile=true")
    assert not events(tmp_path / "again", "compile.begin") and events(tmp_path / "again", "compile.switch")


def test_names_of_other_tools_turn_it_on(tmp_path, home):
    for words in (["--compile_model"], ["compile.mode=reduce-overhead"], ["--torch_compile"]):
        shown = redline("train", *CONVNEXT, *words, "--print-config", cache=home)
        assert "  compile: \"true\"" in shown.stdout, shown.stdout


def test_no_environment_no_compiler_no_place(tmp_path, home):
    eager, _ = train(CONVNEXT, tmp_path / "eager", home, "trainer.max_steps=3")
    for name, variable, value in (("python", "REDLINE_PYTHON", "/nonexistent/python"), ("compiler", "CXX", "/nonexistent/g++"),
                                  ("place", "XDG_CACHE_HOME", "/proc/self/nothing")):
        cache = tmp_path / f"cache-{name}"
        found, done = train(CONVNEXT, tmp_path / name, cache, "trainer.max_steps=3", "trainer.compile=true", **{variable: value})
        assert found == eager
        assert len(events(tmp_path / name, "compile.refused")) == 1
        assert done.stderr.count("not compiled") == 1, done.stderr


def test_a_full_disk_is_one_line(tmp_path, home):
    eager, _ = train(CONVNEXT, tmp_path / "eager", home, "trainer.max_steps=3")
    script = f"mount -t tmpfs -o size=64k tmpfs disk && XDG_CACHE_HOME=$PWD/disk {REDLINE} train " + " ".join(f"'{word}'" for word in map(str, CONVNEXT)) + \
             " trainer.max_steps=3 trainer.compile=true --run-dir run"
    (tmp_path / "disk").mkdir()
    if subprocess.run(["unshare", "-m", "true"], capture_output=True).returncode != 0:
        pytest.skip("no mount namespaces here")
    done = subprocess.run(["unshare", "-m", "--propagation", "private", "bash", "-c", script], cwd=tmp_path, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr[-2000:]
    assert done.stderr.count("not compiled") == 1, done.stderr
    assert [row["loss"] for row in read_steps(tmp_path / "run/steps.bin")] == eager


def children_of(pid):
    found = subprocess.run(["ps", "-o", "pid=", "--ppid", str(pid)], capture_output=True, text=True).stdout.split()
    return [int(child) for child in found]


def test_a_killed_compilation_leaves_training_alone_and_no_files(tmp_path):
    run, cache = tmp_path / "run", tmp_path / "cache"
    job = subprocess.Popen([REDLINE, "train", *map(str, CONVNEXT), "trainer.max_steps=3", "trainer.compile=true", "--run-dir", str(run)],
                           env={**os.environ, "XDG_CACHE_HOME": str(cache)}, stderr=subprocess.PIPE, text=True, stdin=subprocess.DEVNULL)
    for _ in range(600):
        if list(cache.glob("redline/steps/redline-compile-*/log")):
            break
        time.sleep(0.1)
    for child in children_of(job.pid):
        os.kill(child, signal.SIGKILL)
    _, said = job.communicate(timeout=120)
    assert job.returncode == 0, said
    [refused] = events(run, "compile.refused")
    assert "signal 9" in refused["why"], refused
    assert len(read_steps(run / "steps.bin")) == 3
    assert not list(cache.glob("redline/steps/*/step.pt2")) and not list(cache.glob("redline/steps/redline-compile-*"))


def test_compile_ahead_fills_the_cache(tmp_path):
    cache = tmp_path / "cache"
    done = redline("--json", "compile", *CONVNEXT, "--steps", 3, cache=cache)
    assert json.loads(done.stdout)["packages"] == 1
    train(CONVNEXT, tmp_path / "run", cache, "trainer.compile=true", "trainer.max_steps=3")
    assert not events(tmp_path / "run", "compile.begin")
    redline("compile", *CONVNEXT, "--steps", 3, cache=tmp_path / "other", code=1, REDLINE_PYTHON="/nonexistent/python")


def probe(folder, cache, fixture, config, *words, compiled):
    out = folder / f"probe-{compiled}.safetensors"
    redline("probe", *config, *words, f"trainer.compile={'true' if compiled else 'false'}", "--weights", fixture / "weights.safetensors", "--batch", fixture / "batch.safetensors",
            "--steps", 3, "--out", out, cache=cache)
    return safetensors.numpy.load_file(out)


@SLOW
@pytest.mark.parametrize("name", ["nest", "vae_transformer"])
def test_a_probe_gives_the_reference_numbers(tmp_path, home, name):
    fixture = ROOT / "tests/fixtures" / name
    eager = probe(tmp_path, home, fixture, [fixture / "config.yaml"], compiled=False)
    compiled = probe(tmp_path, home, fixture, [fixture / "config.yaml"], compiled=True)
    assert eager.keys() == compiled.keys()
    numpy.testing.assert_allclose(compiled["losses"], eager["losses"], rtol=1e-4)
    for key in eager:
        size = numpy.abs(eager[key]).max() + 1e-12
        assert numpy.abs(compiled[key] - eager[key]).max() <= 2e-3 * size, key


VAE = [ROOT / "recipes/sequence_vae.yaml", "--preset", "quick", "model.d_model=32", "model.n_heads=2", "model.d_ff=64", "model.n_encoder_layers=2", "model.n_decoder_layers=1",
       "model.latent_dim=8", "model.max_sequence_length=64", "trainer.precision=32-true", "trainer.intra_op_threads=1", "trainer.enable_progress_bar=false", "trainer.max_steps=20",
       "model.train_ds.num_workers=1"]
SPEECH = [ROOT / "recipes/nest_fast-conformer_small.yaml", "model.encoder.d_model=32", "model.encoder.n_heads=2", "model.encoder.n_layers=1",
          "model.encoder.subsampling_conv_channels=16", "model.num_classes=64", "trainer.intra_op_threads=1", "trainer.enable_progress_bar=false", "trainer.max_steps=20",
          "model.train_ds.min_duration=2.0", "model.train_ds.max_duration=2.0"]


@SLOW
@pytest.mark.parametrize("words", [["model.dropout=0"], ["model.dropout=0.2"]])
def test_the_sequence_vae_compiles(tmp_path, home, words):
    eager, compiled = both_ways(VAE, tmp_path, home, *words)
    numpy.testing.assert_allclose(compiled, eager, rtol=1e-4)


@SLOW
def test_lift_splat_compiles_with_its_splat_as_an_operator_of_ours(tmp_path, home):
    job = lss_job.make_job(tmp_path, lss_job.make_scenes(tmp_path / "scenes", num=40), steps=20)
    eager, compiled = both_ways([job, "model.optim.name=sgd", "model.optim.lr=0.01"], tmp_path, home)
    numpy.testing.assert_allclose(compiled, eager, rtol=1e-3)
