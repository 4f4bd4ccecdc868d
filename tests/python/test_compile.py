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


def redline(*words, cache, code=0, timeout=900, cwd=None, **environment):
    done = subprocess.run([REDLINE, *map(str, words)], capture_output=True, text=True, timeout=timeout, stdin=subprocess.DEVNULL, cwd=cwd,
                          env={**os.environ, "XDG_CACHE_HOME": str(cache), **environment})
    assert done.returncode == code, (words, done.returncode, done.stdout[-2000:], done.stderr[-3000:])
    return done


def events(run, kind):
    lines = [json.loads(line) for line in (run / "events.jsonl").read_text().splitlines()]
    return [line["fields"] for line in lines if line.get("kind") == kind]


def train(job, run, cache, *words, **more):
    done = redline("train", *job, *words, "--run-dir", run, cache=cache, **more)
    return [row["loss"] for row in read_steps(run / "steps.bin")], done


def both_ways(job, folder, cache, *words, share=1.0):
    """Losses of the eager and of the compiled run, of whose pieces at least `share` were computed by a package."""
    eager, _ = train(job, folder / "eager", cache, "trainer.compile=false", *words)
    compiled, done = train(job, folder / "compiled", cache, "trainer.compile=true", *words)
    assert not events(folder / "compiled", "compile.refused"), events(folder / "compiled", "compile.refused")
    assert len(events(folder / "compiled", "compile.switch")) >= 1
    [count] = events(folder / "compiled", "compile.share")
    assert count["all"] == count["compiled"] + count["rare"] + count["waiting"] + count["refused"] >= 20, count
    assert count["compiled"] >= share * count["all"], count
    assert f"{count['compiled']} of {count['all']} pieces were computed by a compiled step" in done.stderr + done.stdout
    assert len(eager) == len(compiled) == 20
    return numpy.array(eager), numpy.array(compiled)


def off(found, wanted):
    return float(numpy.max(numpy.abs(numpy.array(found) - wanted) / numpy.abs(wanted)))


def test_convnext_trains_alike_and_keeps_its_package(tmp_path, home):
    for name, words in (("plain", []), ("drop_path", ["model.drop_path_rate=0.3"])):
        (tmp_path / name).mkdir()
        eager, compiled = both_ways(CONVNEXT, tmp_path / name, home, *words)
        numpy.testing.assert_allclose(compiled, eager, rtol=1e-4)
    assert len(list((home / "redline/steps").glob("*/step.pt2"))) == 2  # another model, another package
    _, again = train(CONVNEXT, tmp_path / "again", home, "trainer.compile=true")
    assert not events(tmp_path / "again", "compile.begin") and events(tmp_path / "again", "compile.switch")


def test_smaller_batches_stay_eager_and_are_counted(tmp_path, home):
    """21 batches of 8 and one of 4 of the 172 pictures: the last one is a shape of its own."""
    odd = SYNTH.replace("num: 160", "num: 172")
    words = [f"model.train_ds.synth={odd}", "model.train_ds.drop_last=false", "trainer.max_steps=-1"]
    eager, _ = train(CONVNEXT, tmp_path / "eager", home, "trainer.compile=false", *words)
    compiled, done = train(CONVNEXT, tmp_path / "compiled", home, "trainer.compile=true", *words)
    numpy.testing.assert_allclose(compiled, eager, rtol=1e-4)
    [count] = events(tmp_path / "compiled", "compile.share")
    assert count == {"compiled": 21, "all": 22, "rare": 1, "waiting": 0, "refused": 0}, count
    assert "21 of 22 pieces were computed by a compiled step; eager were 1 of a shape that came too rarely." in done.stderr + done.stdout


@SLOW
def test_two_ranks_that_compile_the_same_step_train_as_two_eager_ones(tmp_path):
    words = ["trainer.devices=2", "trainer.strategy=ddp", "trainer.max_steps=8"]
    eager, _ = train(CONVNEXT, tmp_path / "eager", tmp_path / "cache", "trainer.compile=false", *words)
    compiled, done = train(CONVNEXT, tmp_path / "compiled", tmp_path / "cache", "trainer.compile=true", *words)
    assert "not compiled" not in done.stderr, done.stderr
    numpy.testing.assert_allclose(compiled, eager, rtol=1e-4)
    assert len(list((tmp_path / "cache/redline/steps").glob("*/step.pt2"))) == 1  # made by both at once, kept once
    assert not list((tmp_path / "cache/redline/steps").glob("redline-*"))


@SLOW
@pytest.mark.parametrize("fault", ["nan.input@1", "nan.input@5", "nan.gradient@5", "nan.loss@5"])
def test_guards_hold_around_a_package(tmp_path, home, fault):
    losses, _ = train(CONVNEXT, tmp_path / "run", home, "trainer.compile=true", REDLINE_FAULTS=fault)
    assert len(losses) == 20 and not events(tmp_path / "run", "compile.refused")
    [count] = events(tmp_path / "run", "compile.share")
    assert count["compiled"] >= 19, count


def test_names_of_other_tools_turn_it_on(tmp_path, home):
    for words in (["--compile_model"], ["compile.mode=reduce-overhead"], ["--torch_compile"]):
        shown = redline("train", *CONVNEXT, *words, "--print-config", cache=home)
        assert "  compile: \"true\"" in shown.stdout, shown.stdout


def test_the_doctor_says_when_a_run_is_too_short(tmp_path, home):
    said = redline("doctor", *CONVNEXT, "--steps", 12, "--blocks", 0, cache=home, cwd=tmp_path).stdout
    assert "compile=true: the run is too short: compiling takes about 1 min" in " ".join(said.split()), said
    said = redline("doctor", *CONVNEXT, "trainer.max_steps=1000000", "trainer.max_epochs=-1", "--steps", 12, "--blocks", 0, cache=home, cwd=tmp_path).stdout
    assert "too short" not in said and "No rule foresees" in said, said


def test_an_environment_of_another_torch_is_refused(tmp_path):
    """A package is made against one version: the child is told LibTorch's, and compares it with its own."""
    script = str(ROOT / "python/compile_step.py")
    python = ROOT / ".venv/bin/python"
    (tmp_path / "program.json").write_text("{}")
    done = subprocess.run([str(python), "-I", "-B", script, str(tmp_path / "program.json"), "none", "none", "--threads", "1", "--torch", "1.2.3"],
                          capture_output=True, text=True, timeout=300)
    assert done.returncode != 0 and "whose packages LibTorch 1.2.3 cannot run" in done.stderr, done.stderr[-500:]


def compiling_job(run, cache):
    """A job of three steps that waits for its package, in the middle of the compilation."""
    job = subprocess.Popen([REDLINE, "train", *map(str, CONVNEXT), "trainer.max_steps=3", "trainer.compile=true", "--run-dir", str(run)],
                           env={**os.environ, "XDG_CACHE_HOME": str(cache)}, stderr=subprocess.PIPE, text=True, stdin=subprocess.DEVNULL)
    for _ in range(600):
        if list(cache.glob("redline/steps/redline-compile-*/log")):
            break
        time.sleep(0.1)
    return job


def test_a_stop_does_not_wait_for_the_compiler(tmp_path):
    """SIGTERM while a step waits for its package: the run ends with a checkpoint, the child with it, and the next run begins where this one was."""
    run, cache = tmp_path / "run", tmp_path / "cache"
    job = compiling_job(run, cache)
    children = children_of(job.pid)
    begin = time.time()
    job.send_signal(signal.SIGTERM)
    _, said = job.communicate(timeout=60)
    assert job.returncode == 75 and time.time() - begin < 20, (job.returncode, said)
    assert children and not any(os.path.exists(f"/proc/{child}") for child in children)
    assert not list(cache.glob("redline/steps/redline-compile-*"))


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
    job = compiling_job(run, cache)
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


def largest(x):
    return float(numpy.abs(x).max()) if x.size else 0.0


def probe_compiled(folder, cache, config, weights, batch, steps):
    out = folder / "probe.safetensors"
    done = redline("probe", *config, "trainer.compile=true", "--weights", weights, "--batch", batch, "--steps", steps, "--out", out, cache=cache)
    assert "not compiled" not in done.stderr and "compiled" in done.stderr + done.stdout, done.stderr
    return safetensors.numpy.load_file(out)


def same_as_reference(found, expected, outputs, gradients, losses):
    for name, most in outputs.items():
        assert largest(found[name].reshape(expected[name].shape) - expected[name]) <= most * largest(expected[name]), name
    wanted = {name: value for name, value in expected.items() if name.startswith("grad.")}
    scale = max(map(largest, wanted.values()))
    for name, value in wanted.items():
        assert largest(found[name].reshape(value.shape) - value) <= gradients * max(largest(value), 1e-3 * scale), name
    numpy.testing.assert_allclose(found["losses"], expected["losses"], rtol=losses)


FIXTURES = ROOT / "tests/fixtures"
OPTIMISER = ["model.optim.name=adamw", "model.optim.lr=1e-3", "model.optim.betas=[0.9,0.98]", "model.optim.weight_decay=1e-3"]
# The tolerances are those of the eager step (tests/*_fixture_test.cpp).
REFERENCES = {
    "nest": ([FIXTURES / "nest/config.yaml", *OPTIMISER], {"encoded": 1e-4, "log_probs": 1e-4}, 1e-2, 1e-4),
    "nest_sizes/post_conv": ([FIXTURES / "nest_sizes/post_conv/config.yaml", *OPTIMISER], {"encoded": 1e-4, "log_probs": 1e-4}, 1e-2, 1e-4),
    "vae_transformer": ([FIXTURES / "vae_transformer/config.yaml"], {"mu": 1e-4, "logvar": 1e-4, "z": 1e-4, "kl": 1e-4, "reconstruction": 1e-4}, 1e-4, 1e-4),
    "convnext": ([ROOT / "recipes/convnext.yaml", "model.depths=[1,1,2,1]", "model.dims=[16,24,32,48]", "model.num_classes=7", "model.layer_scale_init=0.3", "model.loss=cross_entropy",
                  "model.optim.name=adamw", "model.optim.lr=1e-3", "model.optim.weight_decay=0.05", "model.optim.no_decay=none"],
                 {"features": 1e-5, "embedding": 1e-5, "logits": 1e-5}, 1e-4, 1e-4)}


@SLOW
@pytest.mark.parametrize("name", list(REFERENCES))
def test_a_probe_gives_the_reference_numbers(tmp_path, home, name):
    config, outputs, gradients, losses = REFERENCES[name]
    expected = safetensors.numpy.load_file(FIXTURES / name / "expected.safetensors")
    found = probe_compiled(tmp_path, home, config, FIXTURES / name / "weights.safetensors", FIXTURES / name / "batch.safetensors", 5)
    same_as_reference(found, expected, outputs, gradients, losses)


def noise(shape, seed):
    """Between -1 and 1: a hash of the place, as tests/lss_fixture_test.cpp has it."""
    at = numpy.arange(int(numpy.prod(shape)), dtype=numpy.int64) + int(seed * 16) * 0x9E3779B1 & 0xFFFFFFFF
    for _ in range(2):
        at = (at ^ at >> 16) * 0x45D9F3B & 0xFFFFFFFF
    return ((at ^ at >> 16).astype(numpy.float64) / 2 ** 31 - 1).reshape(shape).astype(numpy.float32)


def lss_fixture_weights(names_and_values):
    filled, place = dict(names_and_values), 0
    for name in sorted(filled):
        value = filled[name]
        if name.endswith(("running_mean", "running_var", "num_batches_tracked")) or value.dtype != numpy.float32:
            continue
        if value.ndim < 2:
            filled[name] = (1.0 if name.endswith("weight") else 0.0) + numpy.float32(0.1) * noise(value.shape, place)
        else:
            filled[name] = noise(value.shape, place) * numpy.float32(0.2 if "table" in name else (3 * value.shape[0] / value.size) ** 0.5)
        place += 1
    return {name: value.astype(numpy.float32) if value.dtype == numpy.float64 else value for name, value in filled.items()}


def lss_fixture_batch():
    """Case "narrow" of tests/tools/make_lss_fixtures.py: three samples of two cameras."""
    b, n, h, w = 3, 2, 64, 96
    yaw = 1.1 * numpy.arange(n)[None, :] + 0.3 * numpy.arange(b)[:, None]
    s, c, o = numpy.sin(yaw), numpy.cos(yaw), numpy.zeros_like(yaw)
    rots = numpy.stack([s, o, c, -c, o, s, o, -numpy.ones_like(yaw), o], -1).reshape(b, n, 3, 3)
    moved = 0.5 * noise((b, n, 3), 0.7)
    moved[..., 2] = 0
    batch = {"imgs": noise((b, n, 3, h, w), 0.1), "rots": rots, "trans": 0.3 * noise((b, n, 3), 0.2), "post_trans": moved,
             "intrins": numpy.broadcast_to(numpy.array([[w * 0.8, 0, w * 0.5], [0, w * 0.8, h * 0.5], [0, 0, 1]]), (b, n, 3, 3)),
             "post_rots": numpy.broadcast_to(numpy.eye(3), (b, n, 3, 3)), "binimgs": noise((b, 1, 32, 24), 0.5) > 0.9}
    return {name: numpy.ascontiguousarray(value, numpy.float32) for name, value in batch.items()}


@SLOW
@pytest.mark.xfail(strict=True, reason="the package is refused: the statistics of one BatchNorm of its neck are 4 % off at this size; not explained yet (docs/compile.md)")
def test_a_probe_of_lift_splat_gives_the_reference_numbers(tmp_path, home):
    size = ["model.grid={xbound: [-32.0, 32.0, 2.0], ybound: [-24.0, 24.0, 2.0], zbound: [-4.0, 4.0, 4.0], dbound: [4.0, 28.0, 4.0]}", "model.image_size=[64,96]",
            "model.cam_channels=5", "model.neck_channels=16", "model.backbone={embed_dim: 12, depths: [1,2,1,1], num_heads: [1,2,2,4], drop_path_rate: 0.0}",
            "model.optim={name: sgd, lr: 0.01, momentum: 0.0, weight_decay: 0.0}", "trainer.gradient_clip_val=0", "trainer.intra_op_threads=1"]
    scenes = lss_job.make_scenes(tmp_path / "scenes")
    job = [lss_job.make_job(tmp_path, scenes, steps=1), *size]
    redline("train", *job, "--run-dir", tmp_path / "run", cache=home)
    redline("convert", tmp_path / "run", tmp_path / "any.safetensors", cache=home)
    safetensors.numpy.save_file(lss_fixture_weights(safetensors.numpy.load_file(tmp_path / "any.safetensors")), tmp_path / "weights.safetensors")
    safetensors.numpy.save_file(lss_fixture_batch(), tmp_path / "batch.safetensors")
    expected = safetensors.numpy.load_file(FIXTURES / "lss/narrow.safetensors")
    found = probe_compiled(tmp_path, home, job, tmp_path / "weights.safetensors", tmp_path / "batch.safetensors", 3)
    same_as_reference(found, expected, {"preds": 1e-3}, 5e-2, 1e-3)


LENGTH = "{kind: sequences, num: 400, seed: 1, vocab_size: 1000, median_length: 40, length_sigma: 0, min_length: 40, max_length: 40}"
VAE = [ROOT / "recipes/sequence_vae.yaml", "--preset", "quick", "model.d_model=32", "model.n_heads=2", "model.d_ff=64", "model.n_encoder_layers=2", "model.n_decoder_layers=1",
       "model.latent_dim=8", "model.max_sequence_length=64", "trainer.precision=32-true", "trainer.intra_op_threads=1", "trainer.enable_progress_bar=false", "trainer.max_steps=20",
       f"model.train_ds.synth={LENGTH}", f"model.validation_ds.synth={LENGTH}", "model.train_ds.num_workers=1"]
SECONDS = "{kind: speech, num: 160, num_validation: 8, seed: 1, median_seconds: 2.0, sigma: 0, min_seconds: 2.0, max_seconds: 2.0}"
SPEECH = [ROOT / "recipes/nest_fast-conformer_small.yaml", "model.encoder.d_model=32", "model.encoder.n_heads=2", "model.encoder.n_layers=1",
          "model.encoder.subsampling_conv_channels=16", "model.num_classes=64", f"model.train_ds.synth={SECONDS}", f"model.validation_ds.synth={SECONDS}",
          "trainer.intra_op_threads=1", "trainer.enable_progress_bar=false", "trainer.max_steps=20"]
NO_DROPOUT = [f"model.encoder.{name}=0" for name in ("dropout", "dropout_pre_encoder", "dropout_emb", "dropout_att")]


@SLOW
@pytest.mark.parametrize("words", [["model.dropout=0"], ["model.dropout=0.2"]])
def test_the_sequence_vae_compiles(tmp_path, home, words):
    eager, compiled = both_ways(VAE, tmp_path, home, *words)
    numpy.testing.assert_allclose(compiled, eager, rtol=1e-4)


@SLOW
@pytest.mark.parametrize("words", [NO_DROPOUT, []])
def test_speech_compiles(tmp_path, home, words):
    """Clips of one length: every piece is the package's."""
    eager, compiled = both_ways(SPEECH, tmp_path, home, *words)
    numpy.testing.assert_allclose(compiled, eager, rtol=1e-4)


OPTIMISERS = {"sgd": ["model.optim={name: sgd, lr: 0.001, momentum: 0.0, weight_decay: 0.0}"], "adamw": []}


@SLOW
@pytest.mark.parametrize("optimiser", list(OPTIMISERS))
def test_lift_splat_compiles_with_its_splat_as_an_operator_of_ours(tmp_path, home, optimiser):
    """The model forgets how its sums were rounded within four steps (a BatchNorm over two samples; Adam besides turns the rounding of gradients that are
    nearly 0 into whole steps). So what 20 steps may differ by is what eager runs whose operators sum in another order differ by: two threads, no kernels made
    by hand. That the gradients are right is shown by the proof of each package and by the reference's numbers above."""
    job = [lss_job.make_job(tmp_path, lss_job.make_scenes(tmp_path / "scenes", num=40), steps=20), *OPTIMISERS[optimiser]]
    eager, compiled = both_ways(job, tmp_path, home)
    others = {name: train(job, tmp_path / name, home, word)[0] for name, word in (("threads", "trainer.intra_op_threads=2"), ("plain", "model.fused_kernels=false"))}
    floor = max(off(other, eager) for other in others.values())
    assert off(compiled[:3], eager[:3]) <= 1e-4
    assert off(compiled, eager) <= max(1e-4, 3 * floor), (off(compiled, eager), {name: off(other, eager) for name, other in others.items()})
