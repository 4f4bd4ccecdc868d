"""Speech pre-training as a user runs it: NeMo's file, every key, bad input, equal runs, and a model that learns."""
import collections
import hashlib
import json
import math
import os
import pathlib
import struct
import subprocess
import tarfile
import wave

import numpy
import pytest
import yaml
from safetensors.numpy import load_file, save_file

ROOT = pathlib.Path(__file__).resolve().parents[2]
REDLINE = os.environ.get("REDLINE", str(ROOT / "build/redline"))
SLOW = os.environ.get("REDLINE_SLOW") == "1"
NEMO = ROOT / "recipes/nest_fast-conformer.yaml"
TINY = ["model.encoder.d_model=32", "model.encoder.n_heads=2", "model.encoder.n_layers=1", "model.encoder.subsampling_conv_channels=16",
        "model.num_classes=64", "trainer.intra_op_threads=1", "trainer.enable_progress_bar=false", "trainer.log_every_n_steps=1"]


def redline(*words, code=0, timeout=600):
    done = subprocess.run([REDLINE, *map(str, words)], capture_output=True, text=True, timeout=timeout, stdin=subprocess.DEVNULL)
    assert done.returncode == code, (words, done.returncode, done.stdout[-2000:], done.stderr[-3000:])
    return done


@pytest.fixture(scope="module")
def clips(tmp_path_factory):
    folder = tmp_path_factory.mktemp("speech") / "clips"
    redline("data", "synth", "speech", "--out", folder, "--num", 24, "--num_validation", 8, "--num_noise", 6, "--seed", 3, "--median_seconds", 1.5,
            "--min_seconds", 1.1, "--max_seconds", 2.5, "--format", "wav")
    return folder


def job(clips, *words, train="train_manifest.json"):
    return [ROOT / "recipes/nest_fast-conformer_small.yaml", "model.train_ds.synth=null", "model.validation_ds.synth=null",
            f"model.train_ds.manifest_filepath={clips / train}", f"model.train_ds.noise_manifest={clips / 'noise_manifest.json'}",
            f"model.validation_ds.manifest_filepath={clips / 'validation_manifest.json'}", *TINY, *words]


def newest(run):
    return sorted((run / "checkpoints").glob("step-*"))[-1] / "model.safetensors"


def digest(run):
    return hashlib.sha256(newest(run).read_bytes()).hexdigest()


def losses(run, name):
    points = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    return [p["value"] if "value" in p else p[name] for p in points if p.get("name") == name or name in p]


def nemo_config(clips, *words, code=0):
    return redline("train", NEMO, f"model.train_ds.manifest_filepath={clips / 'train_manifest.json'}", "model.train_ds.num_workers=1",
                   "model.train_ds.pin_memory=false", "model.validation_ds.num_workers=1", "model.validation_ds.pin_memory=false",
                   f"model.validation_ds.manifest_filepath={clips / 'validation_manifest.json'}", "--print-config", *words, code=code)


def test_nemos_file_is_recognised_and_read_without_a_warning(clips):
    assert "task:" not in NEMO.read_text()
    done = nemo_config(clips)
    assert "warning" not in done.stderr and "speech_ssl" in done.stdout + done.stderr


@pytest.mark.parametrize("key,value", [
    ("model.train_ds.trim_silence", "true"), ("model.train_ds.use_start_end_token", "true"),
    ("model.preprocessor.frame_splicing", "2"), ("model.encoder.subsampling", "striding"), ("model.encoder.self_attention_model", "abs_pos"),
    ("model.encoder.untie_biases", "false"), ("model.encoder.conv_norm_type", "layer_norm"), ("model.spec_augment.freq_masks", "2"),
    ("model.encoder.reduction", "pooling"), ("model.encoder.n_heads", "7"), ("model.preprocessor.pad_to", "4")])
def test_what_is_not_implemented_is_refused_by_name(clips, key, value):
    assert key.rsplit(".", 1)[1] in nemo_config(clips, f"{key}={value}", code=2).stderr


@pytest.mark.parametrize("word", ["model.quantizer.dist_fn=cosine", "model.masking.allow_overlap=false", "model.mask_position=post_conv",
                                  "model.encoder.stochastic_depth_drop_prob=0.1", "model.train_ds.is_concat=true", "model.encoder.xscaling=false",
                                  "model.optim.sched.name=CosineAnnealing", "trainer.gradient_clip_val=0.5"])
def test_other_values_of_implemented_keys_are_taken(clips, word):
    extra = ["model.quantizer.combine_time_steps=1"] if "post_conv" in word else []
    key, value = word.split("=")
    assert f"{key.rsplit('.', 1)[1]}: {value}" in nemo_config(clips, word, *extra).stdout


@pytest.mark.parametrize("name", ["nest_fast-conformer_fast", "nest_fast-conformer_ddp_example", "nest_fast-conformer_high_performance"])
def test_the_guides_recipes_take_a_step(clips, name):
    small = [word for word in TINY if "d_model" not in word] + ["model.encoder.d_model=32", "model.train_ds.batch_size=2"]
    done = redline("train", "--config-path", ROOT / "recipes", "--config-name", name, "--dry-run", *small,
                   f"model.train_ds.manifest_filepath={clips / 'train_manifest.json'}", f"model.validation_ds.manifest_filepath={clips / 'validation_manifest.json'}")
    if name != "nest_fast-conformer_fast":
        assert "one process" in done.stderr


def test_the_same_run_twice_and_with_other_workers_is_bit_equal(clips, tmp_path):
    def run(name, *words):
        redline("train", *job(clips, "trainer.max_steps=6", "model.train_ds.batch_size=4", *words), "--run-dir", tmp_path / name)
        return digest(tmp_path / name)

    first = run("a", "model.train_ds.num_workers=0")
    assert run("b", "model.train_ds.num_workers=0") == first
    assert run("c", "model.train_ds.num_workers=3") == first
    assert run("d", "model.train_ds.num_workers=0", "seed=2") != first


def test_cached_features_change_nothing(clips, tmp_path):
    still = ["trainer.max_steps=8", "model.preprocessor.dither=0", "model.train_ds.batch_size=4"]
    redline("train", *job(clips, *still), "--run-dir", tmp_path / "plain")
    redline("train", *job(clips, *still, "model.cache_features=true", "model.train_ds.cache=memory"), "--run-dir", tmp_path / "cached")
    assert digest(tmp_path / "plain") == digest(tmp_path / "cached")
    assert "dither" in redline("train", *job(clips, "model.cache_features=true"), "--run-dir", tmp_path / "refused", code=2).stderr


def test_eval_gives_what_the_run_recorded(clips, tmp_path):
    redline("train", *job(clips, "trainer.max_steps=2", "trainer.val_check_interval=2", "exp_manager.ema.enable=true", "exp_manager.ema.decay=0.5"), "--run-dir", tmp_path / "run")
    answer = json.loads(redline("--json", "eval", tmp_path / "run").stdout)
    assert answer["step"] == 2 and answer["metrics"] == {name: losses(tmp_path / "run", name)[-1] for name in answer["metrics"]}


def rewrite(clips, name, change):
    entries = [json.loads(line) for line in (clips / "train_manifest.json").read_text().splitlines()]
    (clips / name).write_text("".join(json.dumps(change(i, dict(e))) + "\n" for i, e in enumerate(entries)))
    return name


def write_wav(path, samples, rate=16000, channels=1):
    with wave.open(str(path), "wb") as out:
        out.setnchannels(channels)
        out.setsampwidth(2)
        out.setframerate(rate)
        out.writeframes(b"".join(struct.pack("<h", int(s)) for s in samples))


def finite_run(clips, tmp_path, manifest, *words):
    done = redline("train", *job(clips, "trainer.max_steps=3", "model.train_ds.batch_size=4", *words, train=manifest), "--run-dir", tmp_path / "run")
    found = losses(tmp_path / "run", "loss")
    assert found and all(math.isfinite(v) for v in found), found
    return done


def test_a_manifest_without_durations_is_measured_once(clips, tmp_path):
    finite_run(clips, tmp_path, rewrite(clips, "no_durations.json", lambda i, e: {"audio_filepath": e["audio_filepath"]}))


def test_durations_that_lie_do_not_break_a_batch(clips, tmp_path):
    finite_run(clips, tmp_path, rewrite(clips, "lies.json", lambda i, e: e | {"duration": e["duration"] + (5.0 if i % 2 else -0.05)}))


def test_silence_other_rates_stereo_and_clips_shorter_than_a_block(clips, tmp_path):
    write_wav(clips / "silence.wav", [0] * 20000)
    write_wav(clips / "short.wav", [900 * math.sin(i / 9) for i in range(2000)])
    write_wav(clips / "slow.wav", [900 * math.sin(i / 9) for i in range(12000)], rate=8000)
    write_wav(clips / "stereo.wav", [900 * math.sin(i / 9) for i in range(40000)], channels=2)
    names = {0: ("silence.wav", 1.25), 1: ("short.wav", 0.125), 2: ("slow.wav", 1.5), 3: ("stereo.wav", 1.25)}
    manifest = rewrite(clips, "odd.json", lambda i, e: e | dict(zip(("audio_filepath", "duration"), names[i])) if i in names else e)
    finite_run(clips, tmp_path, manifest, "model.train_ds.min_duration=0", "trainer.max_steps=6")


def test_a_batch_of_one_and_an_empty_mask(clips, tmp_path):
    finite_run(clips, tmp_path, "train_manifest.json", "model.train_ds.batch_size=1")
    redline("train", *job(clips, "trainer.max_steps=2", "model.masking.mask_prob=0.0", "model.train_ds.batch_size=2"), "--run-dir", tmp_path / "empty")
    # No masked position: the loss is 0 with weight 0, so the step changes nothing and is said to be empty.
    assert '"kind":"step.empty"' in (tmp_path / "empty/events.jsonl").read_text()
    assert "nan" not in (tmp_path / "empty/metrics.jsonl").read_text().lower() and losses(tmp_path / "empty", "grad_norm") == [0.0, 0.0]


def read_wav(path):
    with wave.open(str(path)) as source:
        return numpy.frombuffer(source.readframes(source.getnframes()), "<i2").astype("float32") / 32768


def tokens_of(job_words, weights, manifest, folder):
    """The quantizer's tokens of a manifest's first clips, by the probe."""
    entries = [json.loads(line) for line in manifest.read_text().splitlines()][:240]
    audio = [read_wav(manifest.parent / e["audio_filepath"]) for e in entries]
    batch = numpy.zeros((len(audio), max(map(len, audio))), "float32")
    for row, clip in zip(batch, audio):
        row[:len(clip)] = clip
    lengths = numpy.array([len(a) for a in audio], "int64")
    save_file({"audio": batch, "audio_lengths": lengths}, folder / "batch.safetensors")
    redline("probe", *job_words, "--weights", weights, "--batch", folder / "batch.safetensors", "--steps", 1, "--out", folder / "probe.safetensors")
    found = load_file(folder / "probe.safetensors")
    return [int(t) for row, n in zip(found["tokens"], found["encoded_lengths"]) for t in row[:n, 0]]


def unigram_nats(train, validation, classes):
    counts = collections.Counter(train)
    total = len(train) + classes
    return sum(-math.log((counts[t] + 1) / total) for t in validation) / len(validation)


def gap_to_unigram(folder, seed, steps, words):
    """Validation loss of a run and the cross-entropy of the unigram distribution of the training tokens on the validation tokens."""
    clips = folder / "clips"
    if not clips.exists():
        redline("data", "synth", "speech", "--out", clips, "--num", 960, "--num_validation", 48, "--num_noise", 32, "--seed", 1, "--median_seconds", 2.5,
                "--min_seconds", 1.2, "--max_seconds", 6, "--format", "wav")
    words = [w for w in job(clips, *words, f"seed={seed}") if not w in TINY[:5]]
    run = folder / f"run{seed}"
    redline("train", *words, f"trainer.max_steps={steps}", f"trainer.val_check_interval={steps}", "--run-dir", run, timeout=3000)
    classes = 256
    train, validation = (tokens_of(words, newest(run), clips / f"{part}_manifest.json", folder) for part in ("train", "validation"))
    return losses(run, "val_loss")[-1], unigram_nats(train, validation, classes)


# The small recipe with fewer classes and shorter blocks: the middle of a block of 0.4 s of generated speech says little more than its unigram.
LEARNS = ["model.num_classes=256", "model.encoder.d_model=96", "model.encoder.n_layers=2", "model.encoder.subsampling_conv_channels=64",
          "model.masking.block_size=16", "model.masking.mask_prob=0.02", "model.optim.lr=0.25", "model.optim.sched.warmup_steps=60",
          "model.train_ds.batch_size=8", "model.train_ds.num_workers=1", "trainer.intra_op_threads=2"]


@pytest.mark.skipif(not SLOW, reason="three training runs of minutes")
def test_three_seeds_learn_more_than_the_unigram_slow(tmp_path):
    for seed in (1, 2, 3):
        loss, baseline = gap_to_unigram(tmp_path, seed, 1000, LEARNS)
        assert loss <= baseline - 0.3, (seed, loss, baseline)


def test_a_short_run_learns(clips, tmp_path):
    redline("train", *job(clips, "trainer.max_steps=40", "model.train_ds.batch_size=8", "model.optim.sched.warmup_steps=10", "trainer.val_check_interval=1.0"),
            "--run-dir", tmp_path / "run")
    found = losses(tmp_path / "run", "loss")
    assert sum(found[-8:]) / 8 < sum(found[:4]) / 4 - 0.15, found


NEMO_OPENS = """
import sys
sys.path.insert(0, sys.argv[3])
import timm_import  # a torchvision that does not fit this torch is no reason to fail
from safetensors.torch import save_file
from nemo.collections.asr.models.ssl_models import EncDecDenoiseMaskedTokenPredModel as Model
model = Model.restore_from(sys.argv[1], map_location="cpu")
print("opened", sum(p.numel() for p in model.parameters()), model.encoder.d_model, len(model.encoder.layers))
save_file({name: value.contiguous() for name, value in model.state_dict().items()}, sys.argv[2])
"""


def test_a_run_becomes_a_nemo_file_without_help(clips, tmp_path):
    redline("train", *job(clips, "trainer.max_steps=1"), "--run-dir", tmp_path / "run")
    redline("convert", tmp_path / "run", tmp_path / "out.nemo")
    with tarfile.open(tmp_path / "out.nemo") as archive:
        config = yaml.safe_load(archive.extractfile("./model_config.yaml"))
    assert config["target"].endswith("EncDecDenoiseMaskedTokenPredModel") and config["train_ds"] is None
    assert config["encoder"]["d_model"] == 32 and config["encoder"]["_target_"].endswith("ConformerEncoder")
    assert isinstance(config["preprocessor"]["log_zero_guard_value"], float) and "count_last_frame" not in config["preprocessor"]
    assert "fused_kernels" not in config and config["decoder"]["feat_in"] == 32
    # One of its checkpoints as well; a run of another task says why not.
    checkpoint = next((tmp_path / "run/checkpoints").glob("step-*"))
    redline("convert", checkpoint, tmp_path / "again.nemo")
    redline("train", ROOT / "recipes/sequence_vae.yaml", "--preset", "quick", "trainer.max_steps=1", "model.d_model=32", "--run-dir", tmp_path / "vae")
    assert "Only a speech_ssl run" in redline("convert", tmp_path / "vae", tmp_path / "no.nemo", code=2).stderr
    peers = ROOT / ".venv-peers/bin/python"
    if not (ROOT / ".venv-peers/.redline-requirements").exists():
        pytest.skip("NeMo itself was not asked: the peers' environment is not installed (bench/run makes it)")
    done = subprocess.run([peers, "-c", NEMO_OPENS, tmp_path / "out.nemo", tmp_path / "theirs.safetensors", ROOT / "bench/convnext"], capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr[-3000:]
    assert " 32 1" in done.stdout
    theirs, ours = load_file(tmp_path / "theirs.safetensors"), load_file(newest(tmp_path / "run"))
    assert set(ours) <= set(theirs) and all(numpy.array_equal(ours[name].reshape(theirs[name].shape), theirs[name]) for name in ours)
