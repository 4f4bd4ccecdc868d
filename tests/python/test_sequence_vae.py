"""The third guide as its user: flags, presets and recipes, `redline sample`, and Parquet files that are not as they should be."""
import json
import os
import pathlib
import subprocess

import pyarrow
import pyarrow.parquet
import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
REDLINE = os.environ.get("REDLINE", str(ROOT / "build/redline"))
RECIPE = ROOT / "recipes/sequence_vae.yaml"
SMALL = ["model.d_model=16", "model.d_ff=16", "model.n_heads=2", "model.n_encoder_layers=1", "model.n_decoder_layers=1", "model.latent_dim=4",
         "model.vocab_size=50", "trainer.intra_op_threads=1", "trainer.enable_progress_bar=false"]
LISTS = pyarrow.list_(pyarrow.int32())


def rows(count=64):
    return [[3 + (7 * i + t * t) % 47 for t in range(5 + i % 13)] for i in range(count)]


def write(folder, column, name="part-0.parquet", key="tokens"):
    folder.mkdir(exist_ok=True)
    pyarrow.parquet.write_table(pyarrow.table({key: column}), folder / name)
    return folder


@pytest.fixture(scope="module")
def good(tmp_path_factory):
    return write(tmp_path_factory.mktemp("good") / "data", pyarrow.array(rows(), LISTS))


def train(work, *words, data=None, validation=None, recipe=RECIPE, small=True, code=0):
    words = [*words, f"exp_manager.exp_dir={work}"]
    for part, folder in (("train_ds", data), ("validation_ds", validation)):
        if folder:
            words += [f"model.{part}.path={folder}", f"model.{part}.synth=null"]
    done = subprocess.run([REDLINE, "train", recipe, *(SMALL if small else []), *words], capture_output=True, text=True, cwd=work, timeout=300)
    assert done.returncode == code, (words, done.returncode, done.stdout, done.stderr)
    return done.stdout + done.stderr


def resolved(*words, recipe=RECIPE):
    """The resolved config as a dictionary of dotted keys."""
    done = subprocess.run([REDLINE, "train", recipe, *words, "--print-config"], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    values, path = {}, []
    for line in done.stdout.splitlines():
        text = line.split("  #")[0].rstrip()
        if ":" not in text or text.lstrip().startswith("#"):
            continue
        depth = (len(text) - len(text.lstrip())) // 2
        key, value = text.strip().split(":", 1)
        path = path[:depth] + [key]
        values[".".join(path)] = value.strip().strip('"')
    return values, done.stderr


DEFAULTS = {"model.train_ds.batch_size": "4", "model.train_ds.num_workers": "8", "model.max_sequence_length": "1000",
            "trainer.accumulate_grad_batches": "2", "model.monitor.update_frequency": "100", "model.monitor.plot_frequency": "1000",
            "model.monitor.window_size": "50", "model.monitor.verbose": "false", "trainer.val_check_interval": "0.1",
            "trainer.limit_val_batches": "0.1", "exp_manager.checkpoint_callback_params.save_top_k": "2", "trainer.detect_anomaly": "false",
            "trainer.enable_model_summary": "false", "trainer.sync_batchnorm": "false", "trainer.compile": "false"}


def expect(values, wanted):
    assert {key: values.get(key) for key in wanted} == wanted


def test_the_defaults_are_the_guides():
    values, _ = resolved()
    expect(values, DEFAULTS)


def test_every_flag_of_the_guide_reaches_its_field():
    words = ("--batch_size 6 --num_workers 3 --pin_memory --max_sequence_length 700 --precision bf16-mixed --gradient_accumulation_steps 4 "
             "--compile_model --fast_detection --use_dynamic_padding --devices 2").split()
    values, err = resolved(*words)
    expect(values, {"model.train_ds.batch_size": "6", "model.train_ds.num_workers": "3", "model.max_sequence_length": "700",
                    "model.train_ds.max_sequence_length": "700", "trainer.precision": "bf16-mixed", "trainer.accumulate_grad_batches": "4",
                    "trainer.compile": "true", "model.monitor.fast_detection": "true", "model.monitor.update_frequency": "200",
                    "model.monitor.plot_frequency": "2000", "model.monitor.window_size": "50", "model.train_ds.use_dynamic_padding": "true", "trainer.devices": "2"})
    # What cannot apply here is said in one line each.
    assert err.count("pin_memory") == 1, err


@pytest.mark.parametrize("preset, wanted", [
    ("quick", {"model.train_ds.batch_size": "4", "model.train_ds.num_workers": "8", "trainer.accumulate_grad_batches": "2",
               "model.max_sequence_length": "1000", "model.monitor.update_frequency": "200"}),
    ("max-performance", {"model.monitor.disable_metrics_monitoring": "true", "trainer.compile": "true"}),
    ("memory-limited", {"model.train_ds.batch_size": "2", "model.train_ds.num_workers": "4", "model.max_sequence_length": "500",
                        "model.train_ds.max_sequence_length": "500", "model.monitor.update_frequency": "200"}),
    ("debug", {"model.train_ds.batch_size": "1", "model.train_ds.num_workers": "2", "model.max_sequence_length": "100",
               "trainer.precision": "32-true", "model.monitor.fast_detection": "true"})])
def test_presets_are_the_guides_commands(preset, wanted):
    values, _ = resolved("--preset", preset)
    expect(values, wanted)


def test_the_unoptimised_recipe_keeps_its_settings():
    values, _ = resolved(recipe=ROOT / "recipes/train_with_collapse_detection.yaml")
    expect(values, {"model.monitor.update_frequency": "20", "model.monitor.plot_frequency": "200", "model.monitor.window_size": "100",
                    "model.monitor.verbose": "true", "model.train_ds.batch_size": "1", "model.train_ds.num_workers": "2",
                    "trainer.val_check_interval": "0.05", "trainer.limit_val_batches": "0.2", "trainer.precision": "32-true",
                    "exp_manager.checkpoint_callback_params.save_top_k": "3", "model.vocab_size": "1000"})


@pytest.fixture(scope="module")
def run(tmp_path_factory, good):
    work = tmp_path_factory.mktemp("run")
    log = train(work, "trainer.max_steps=12", "trainer.max_epochs=3", "--precision", "32", "--num_workers", "1", "--max_sequence_length", "100",
                "model.monitor.update_frequency=3", "model.monitor.plot_frequency=6", "model.monitor.verbose=true", data=good, validation=good)
    return work / "sequence-vae", log


def test_a_run_leaves_metrics_pictures_and_two_checkpoints(run):
    folder, log = run
    assert "KL" in log and "active units" in log
    names = set()
    for line in (folder / "metrics.jsonl").read_text().splitlines():
        point = json.loads(line)
        names |= {point["name"]} if "name" in point else set(point)
    assert {"posterior/kl", "posterior/kl_dim_00", "posterior/active_units", "posterior/mutual_information", "posterior/collapse",
            "val_perplexity", "val_active_units"} <= names
    pictures = {path.name for path in folder.rglob("posterior_*")}
    assert {"posterior_history.svg", "posterior_history.png", "posterior_dimensions.svg", "posterior_dimensions.png"} <= pictures
    assert 1 <= len(list((folder / "checkpoints").glob("step-*"))) <= 3
    from tensorboard.backend.event_processing import event_accumulator as ea
    events = ea.EventAccumulator(str(folder / "tensorboard"), size_guidance={ea.IMAGES: 0})
    events.Reload()
    assert any("posterior" in tag for tag in events.Tags()["images"])


def test_sample_decodes_from_the_prior_and_reconstructs(run):
    done = subprocess.run([REDLINE, "sample", run[0], "--num", "8", "--json"], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    answer = json.loads(done.stdout)
    assert len(answer["prior"]) == 8 and len(answer["reconstructions"]) == 8
    assert all(0 <= token < 50 for row in answer["prior"] for token in row)
    originals = [pair["original"] for pair in answer["reconstructions"]]
    assert all(original in rows() for original in originals)
    text = subprocess.run([REDLINE, "sample", run[0], "--num", "2"], capture_output=True, text=True, timeout=60).stdout
    assert "From the prior:" in text and "reconstructions" in text


def test_embeddings_and_values_of_several_numbers_a_step_are_not_cut_in_the_middle(tmp_path):
    values = write(tmp_path / "values", pyarrow.array([[0.1 * t for t in range(3 * (10 + i % 5))] for i in range(16)],
                                                      pyarrow.list_(pyarrow.float32())), key="values")
    log = train(tmp_path, "model.input=values", "model.column=values", "model.input_dim=3", "model.train_ds.columns=[values]",
                "~model.validation_ds", "--max_sequence_length", "12", "--precision", "32", "--num_workers", "1", "trainer.max_steps=2", data=values)
    assert "Sequences of more than 12 steps are cut" in log and "Bad sample" not in log


def odd(kind):
    list_of = rows()
    if kind == "null":
        list_of[3] = None
    if kind == "null element":
        list_of[3] = [4, None, 5]
    if kind == "empty":
        list_of[3] = []
    if kind == "range":
        list_of[3][2] = 1000
    if kind == "negative":
        list_of[3][2] = -7
    return pyarrow.array(list_of, LISTS)


@pytest.mark.parametrize("kind, words", [("null", "'tokens' is null."), ("null element", "has a null element."), ("empty", "is an empty list."),
                                         ("range", "token 1000 at position 2 is outside 0 to 49"),
                                         ("negative", "token -7 at position 2 is outside 0 to 49")])
def test_a_bad_row_is_named_and_replaced(tmp_path, good, kind, words):
    data = write(tmp_path / "data", odd(kind))
    log = train(tmp_path, "--num_workers", "1", "--precision", "32", "~model.validation_ds", data=data)
    assert "part-0.parquet row 3: " in log and words in log, log
    assert log.count("Bad sample") == 1
    [record] = tmp_path.rglob("bad_samples.jsonl")
    assert record.read_text().count("\n") == 1


@pytest.mark.parametrize("kind, words", [
    ("strings", "does not hold numbers"), ("floats", "holds real numbers"), ("other name", "Usable columns: 'ids'"), ("all empty", "empty list"),
    ("cut off", "it is cut off"), ("two types", "Files of one set need the same types"), ("zero rows", "holds no rows"),
    ("no file", "No Parquet file was found")])
def test_unusable_files_end_the_run_with_one_sentence(tmp_path, kind, words):
    folder = tmp_path / "data"
    folder.mkdir()
    if kind == "strings":
        write(folder, pyarrow.array([["a", "b"]] * 64))
    if kind == "floats":
        write(folder, pyarrow.array([[1.5, 2.5]] * 64, pyarrow.list_(pyarrow.float32())))
    if kind == "other name":
        write(folder, pyarrow.array(rows(), LISTS), key="ids")
    if kind == "all empty":
        write(folder, pyarrow.array([[]] * 64, LISTS))
    if kind == "cut off":
        whole = (write(folder, pyarrow.array(rows(2000), LISTS)) / "part-0.parquet").read_bytes()
        (folder / "part-0.parquet").write_bytes(whole[:len(whole) // 2])
    if kind == "two types":
        write(folder, pyarrow.array(rows(), LISTS))
        write(folder, pyarrow.array([[1.5]] * 64, pyarrow.list_(pyarrow.float32())), "part-1.parquet")
    if kind == "zero rows":
        write(folder, pyarrow.array([], LISTS))
    log = train(tmp_path, "--num_workers", "1", "--precision", "32", "~model.validation_ds", data=folder, code=3)
    errors = [line for line in log.splitlines() if line.startswith("error: ")]
    assert len(errors) == 1 and words in errors[0], log


def test_long_sequences_are_cut_and_said(tmp_path):
    data = write(tmp_path / "data", pyarrow.array(rows()[:-1] + [[5] * 5000], LISTS))
    log = train(tmp_path, "--num_workers", "1", "--precision", "32", "--max_sequence_length", "100", "~model.validation_ds", data=data)
    assert "Sequences of more than 98 steps are cut (model.max_sequence_length 100, start and end included); the first is row 63 with 5000." in log
    assert "Bad sample" not in log


def metric_names(folder):
    return {json.loads(line).get("name") for line in (folder / "metrics.jsonl").read_text().splitlines()}


@pytest.mark.parametrize("words", [
    ["model.architecture=lstm", "model.lstm.embed_dim=8", "model.lstm.encoder_hidden=12", "model.lstm.decoder_hidden=12"],
    ["model.aggressive.enabled=true", "model.aggressive.max_inner_steps=2", "model.kl_schedule.kind=constant"],
    ["model.kl_schedule.kind=cyclical", "model.free_bits.mode=per_dimension"], ["model.free_bits.mode=clamp", "model.pooling=mean"]],
    ids=["lstm", "aggressive", "cyclical", "clamp"])
def test_variants_train_and_generate(tmp_path, good, words):
    train(tmp_path, *words, "trainer.max_steps=4", "model.monitor.update_frequency=2", "--precision", "32", "--num_workers", "1", data=good, validation=good)
    assert "posterior/kl" in metric_names(tmp_path / "sequence-vae")
    done = subprocess.run([REDLINE, "sample", tmp_path / "sequence-vae", "--num", "2", "--json"], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0 and len(json.loads(done.stdout)["prior"]) == 2, done.stderr


def test_without_the_monitor_nothing_of_it_is_recorded(tmp_path, good):
    train(tmp_path, "--disable_metrics_monitoring", "trainer.max_steps=4", "model.monitor.update_frequency=2", "--precision", "32", "--num_workers",
          "1", "~model.validation_ds", data=good)
    assert not any((name or "").startswith("posterior/") for name in metric_names(tmp_path / "sequence-vae"))


def test_a_run_continues_with_its_verdict(tmp_path, good):
    words = ["model.monitor.update_frequency=2", "model.kl_schedule.kind=constant", "model.monitor.active_variance=1e9", "--precision", "32",
             "--num_workers", "1", "~model.validation_ds"]
    first = train(tmp_path, *words, "trainer.max_steps=4", "trainer.max_epochs=2", data=good)
    assert "posterior collapse" not in first  # two looks are no streak of three
    second = train(tmp_path, *words, "trainer.max_steps=8", "trainer.max_epochs=2", data=good)
    assert "posterior collapse (full) since step 2: no active unit" in second
