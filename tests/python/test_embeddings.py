"""What a ConvNeXt run leaves of its embeddings: metrics, pictures, saved vectors, and files that the real TensorBoard's projector opens."""
import json
import os
import pathlib
import subprocess

import pytest
import safetensors.numpy

ROOT = pathlib.Path(__file__).resolve().parents[2]
REDLINE = os.environ.get("REDLINE", str(ROOT / "build/redline"))
RECIPE = ROOT / "recipes/convnext.yaml"
SMALL = ["model.depths=[1,1]", "model.dims=[8,16]", "model.num_classes=4", "model.image_size=32", "model.train_ds.batch_size=16", "model.train_ds.num_workers=0",
         "model.validation_ds.num_workers=0", "model.validation_ds.batch_size=16", "model.optim.scale_lr=none", "trainer.max_epochs=4",
         "trainer.intra_op_threads=1", "trainer.enable_progress_bar=false"]


@pytest.fixture(scope="module")
def pictures(tmp_path_factory):
    folder = tmp_path_factory.mktemp("pictures") / "set"
    subprocess.run([REDLINE, "data", "synth", "images", "--out", folder, "--num", "64", "--num_validation", "32", "--seed", "1", "--num_classes", "4",
                    "--width", "40", "--height", "40"], check=True, capture_output=True, timeout=120)
    return folder


def train(run, pictures, *words, code=0):
    done = subprocess.run([REDLINE, "train", RECIPE, *SMALL, f"model.train_ds.path={pictures / 'train'}", f"model.validation_ds.path={pictures / 'validation'}",
                           *words, "--run-dir", run], capture_output=True, text=True, timeout=300)
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout + done.stderr


@pytest.fixture(scope="module")
def run(pictures, tmp_path_factory):
    folder = tmp_path_factory.mktemp("run") / "run"
    train(folder, pictures, "model.monitor.separation_every_n_epochs=1", "model.monitor.pictures_every_n_epochs=2", "model.monitor.perplexity=5")
    return folder


def metric_names(run):
    names = set()
    for line in (run / "metrics.jsonl").read_text().splitlines():
        names |= set(json.loads(line))
    return names


def test_metrics_of_both_sets_are_recorded(run):
    text = (run / "metrics.jsonl").read_text()
    for part in ("train", "val"):
        for name in ("silhouette", "davies_bouldin", "calinski_harabasz", "intra_inter_ratio", "recall_at_1", "map_at_r", "nmi"):
            assert f"separation/{part}_{name}" in text


def test_pictures_are_in_the_run_and_in_its_page(run, tmp_path):
    for name in ("embedding_train", "embedding_val"):
        assert (run / "plots" / f"{name}.png").read_bytes().startswith(b"\x89PNG")
        assert (run / "plots" / f"{name}.svg").read_text().startswith("<svg")
    subprocess.run([REDLINE, "report", run, "--html", tmp_path / "page.html"], check=True, capture_output=True, timeout=60)
    page = (tmp_path / "page.html").read_text()
    assert "embedding_val of" in page and "embedding_train of" in page


def test_vectors_are_saved_with_labels_and_samples(run):
    files = sorted((run / "embeddings").glob("val_step_*.safetensors"))
    assert len(files) == 2  # epochs 2 and 4
    saved = safetensors.numpy.load_file(files[-1])
    assert saved["embeddings"].shape == (32, 16)
    assert sorted(saved["ids"].tolist()) == list(range(32))
    assert saved["labels"].tolist() == [i // 8 for i in saved["ids"].tolist()]  # folders in order, as many pictures each


def test_tensorboards_own_projector_reads_them(run):
    from tensorboard.backend.event_processing import plugin_event_multiplexer
    from tensorboard.plugins import base_plugin
    from tensorboard.plugins.projector import projector_plugin
    multiplexer = plugin_event_multiplexer.EventMultiplexer()
    multiplexer.AddRunsFromDirectory(str(run / "tensorboard"))
    multiplexer.Reload()
    context = base_plugin.TBContext(logdir=str(run / "tensorboard"), multiplexer=multiplexer)
    plugin = projector_plugin.ProjectorPlugin(context)
    plugin._update_configs()
    configs = plugin._configs
    assert len(configs) == 1
    config = next(iter(configs.values()))
    shapes = {one.tensor_name: list(one.tensor_shape) for one in config.embeddings}
    assert len(shapes) == 4 and shapes["val:00016"] == [32, 16] and shapes["train:00008"] == [64, 16]
    saved = safetensors.numpy.load_file(run / "embeddings/val_step_00000016.safetensors")
    one = next(e for e in config.embeddings if e.tensor_name == "val:00016")
    table = projector_plugin._read_tensor_tsv_file(str(run / "tensorboard" / one.tensor_path))
    assert abs(table - saved["embeddings"]).max() < 1e-5
    labels = (run / "tensorboard" / one.metadata_path).read_text().splitlines()
    assert labels[0] == "label\tsample" and [int(line.split("\t")[0]) for line in labels[1:]] == saved["labels"].tolist()


def test_a_resumed_run_measures_what_an_undisturbed_one_does(run, pictures, tmp_path):
    words = ["model.monitor.separation_every_n_epochs=1", "model.monitor.pictures_every_n_epochs=2", "model.monitor.perplexity=5"]
    train(tmp_path / "again", pictures, *words, "trainer.max_steps=6")
    train(tmp_path / "again", pictures, *words)

    def measured(folder):
        rows = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
        return [row for row in rows if "separation/train_silhouette" in json.dumps(row)]
    first, second = measured(run), measured(tmp_path / "again")
    assert len(first) == len(second) == 4
    strip = lambda rows: [{k: v for k, v in row.items() if "separation" in k or k in ("metrics", "step")} for row in rows]  # noqa: E731
    assert strip(first) == strip(second)


def test_evaluation_measures_the_held_out_set(run):
    done = subprocess.run([REDLINE, "eval", run, "--json"], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert "val_recall_at_1" in done.stdout and "val_silhouette" in done.stdout


def test_mixing_augmentation_trains(pictures, tmp_path):
    said = train(tmp_path / "mixed", pictures, "model.train_ds.augment.mixup=0.8", "model.train_ds.augment.cutmix=1.0", "model.train_ds.augment.reprob=0.25",
                 "model.train_ds.augment.auto_augment=rand-m9-mstd0.5-inc1", "model.monitor.separation_every_n_epochs=2", "trainer.max_epochs=2")
    assert "mixup and cutmix mixed all of them" in said
    text = (tmp_path / "mixed/metrics.jsonl").read_text()
    assert "separation/val_recall_at_1" in text and "separation/train_recall_at_1" not in text


def test_other_classes_in_the_validation_are_refused(pictures, tmp_path):
    (tmp_path / "few/class_000").mkdir(parents=True)
    source = next((pictures / "validation/class_000").iterdir())
    (tmp_path / "few/class_000" / source.name).write_bytes(source.read_bytes())
    said = train(tmp_path / "run", pictures, f"model.validation_ds.path={tmp_path / 'few'}", code=3)
    assert "missing there: class_001, class_002, class_003" in said
