"""What is wrong with pictures, labels and embeddings is said in clear words, and nothing else is lost: each case through the commands, as a user meets it."""
import json
import os
import pathlib
import shutil
import subprocess

import numpy
import pytest
import safetensors.numpy
from PIL import Image

ROOT = pathlib.Path(__file__).resolve().parents[2]
REDLINE = os.environ.get("REDLINE", str(ROOT / "build/redline"))
SMALL = ROOT / "recipes/convnext_small.yaml"
TINY = ["model.depths=[1,1]", "model.dims=[8,16]", "model.num_classes=3", "model.image_size=32", "model.train_ds.synth=null", "model.validation_ds.synth=null",
        "model.train_ds.batch_size=8", "model.train_ds.num_workers=1", "model.validation_ds.batch_size=8", "model.validation_ds.num_workers=0",
        "trainer.intra_op_threads=1", "trainer.enable_progress_bar=false", "trainer.max_epochs=1"]


def picture(seed, size=(40, 30)):
    """Smooth, so that JPEG and resizing keep it nearly the same."""
    draw = numpy.random.default_rng(seed)
    small = Image.fromarray(draw.integers(0, 256, (4, 5, 3), dtype=numpy.uint8))
    return small.resize(size, Image.Resampling.BICUBIC)


@pytest.fixture
def pictures(tmp_path):
    """Three classes of eight pictures each, and a validation of three each."""
    for part, count in (("train", 8), ("validation", 3)):
        for label, name in enumerate(("ants", "bees", "cats")):
            (tmp_path / part / name).mkdir(parents=True)
            for i in range(count):
                picture(100 * label + i).save(tmp_path / part / name / f"{i}.png")
    return tmp_path


def train(folder, *words, code=0):
    done = subprocess.run([REDLINE, "train", str(SMALL), *TINY, f"model.train_ds.path={folder / 'train'}", f"model.validation_ds.path={folder / 'validation'}",
                           *words, "--run-dir", str(folder / "run")], capture_output=True, text=True, timeout=120)
    assert done.returncode == code, (done.returncode, done.stdout[-2000:], done.stderr[-2000:])
    return done.stdout + done.stderr


def bad_samples(folder):
    file = folder / "run/bad_samples.jsonl"
    return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []


def predict(folder, data, *words, code=0, said=None):
    out = folder / "out.safetensors"
    done = subprocess.run([REDLINE, "predict", str(folder / "run"), str(data), *words, "--out", str(out)], capture_output=True, text=True, timeout=120)
    assert done.returncode == code, (done.returncode, done.stdout[-2000:], done.stderr[-2000:])
    if said is not None:
        said.append(done.stderr)
    return safetensors.numpy.load_file(out) if code == 0 else done.stderr


def test_good_pictures_are_the_control(pictures):
    said = train(pictures)
    assert bad_samples(pictures) == [] and "warning" not in said.replace("num_workers", "")


DAMAGE = {
    "empty": (b"", "0 bytes"),
    "text": (b"this is no picture at all", "allowed formats are JPEG and PNG"),
    "cut_png": ("png", "truncated"),
    "cut_jpeg": ("jpeg", "truncated"),
    "gif": (b"GIF89a" + bytes(30), "is a GIF file"),
}


@pytest.mark.parametrize("kind", DAMAGE)
def test_an_unreadable_picture_is_named_counted_and_replaced(pictures, kind):
    content, words = DAMAGE[kind]
    if isinstance(content, str):
        picture(1, (200, 200)).save(pictures / "whole", format=content)
        content = (pictures / "whole").read_bytes()[:-200] if content == "jpeg" else (pictures / "whole").read_bytes()[:90]
    (pictures / "train/bees/broken.jpg").write_bytes(content)
    said = train(pictures, "model.train_ds.max_bad_fraction=0.1")
    [bad] = bad_samples(pictures)
    assert bad["name"].endswith("bees/broken.jpg") and words in bad["reason"], bad
    assert "broken.jpg" in said or "1 " in said and "bad" in said, said
    # Nothing else is lost: the run has all its steps, and each of them its eight pictures (25 in batches of 8).
    assert "Stopped after 4 steps" in said or "Stopped after 3 steps" in said, said


def test_too_many_unreadable_pictures_end_the_run_in_words(pictures):
    for name in ("ants", "bees"):
        for file in (pictures / "train" / name).iterdir():
            file.write_bytes(b"")
    said = train(pictures, code=3)
    assert "0 bytes" in said and "max_bad_fraction" in said, said


def test_a_prediction_of_an_unreadable_picture_is_not_anothers(pictures):
    train(pictures)
    (pictures / "validation/bees/1.png").write_bytes(b"")
    whole = predict(pictures, pictures / "train")
    assert whole["embedding"].shape[0] == 24
    before = predict(pictures, pictures / "validation", said=(words := []))
    assert "bees/1.png" in words[0] and "0 bytes" in words[0] and "1 of 9 samples could not be used and have no row" in words[0], words
    assert before["sample_ids"].tolist() == [0, 1, 2, 3, 5, 6, 7, 8]
    assert before["labels"].tolist() == [0, 0, 0, 1, 1, 2, 2, 2] and len(before["embedding"]) == 8
    shutil.copy(pictures / "validation/bees/0.png", pictures / "validation/bees/1.png")
    whole = predict(pictures, pictures / "validation")
    assert whole["sample_ids"].tolist() == list(range(9))
    assert numpy.abs(numpy.delete(whole["embedding"], 4, 0) - before["embedding"]).max() < 1e-5, "every row is its own picture's"


def test_a_class_with_one_picture_trains_and_is_named(pictures):
    for file in list((pictures / "train/cats").iterdir())[1:]:
        file.unlink()
    said = train(pictures, "model.monitor.separation_every_n_epochs=1")
    assert "1 of 3 classes have one picture (cats)" in said, said
    assert "alone in their class" in said, said
    text = (pictures / "run/metrics.jsonl").read_text()
    assert "separation/train_recall_at_1" in text and "nan" not in text.lower()


@pytest.mark.parametrize("loss", ["supcon", "triplet", "arcface", "center"])
def test_a_class_with_one_picture_has_a_finite_loss(pictures, loss):
    for file in list((pictures / "train/cats").iterdir())[1:]:
        file.unlink()
    train(pictures, f"model.loss={loss}")
    rows = [json.loads(line) for line in (pictures / "run/metrics.jsonl").read_text().splitlines()]
    assert rows and "nan" not in json.dumps(rows).lower() and "inf" not in json.dumps(rows).lower().replace("info", "")


def embeddings_of(pictures, name, save):
    """The embeddings of a plain picture and of another file of what should be the same one."""
    folder = pictures / name
    for part, write in (("plain", lambda path: picture(5).save(path.with_suffix(".png"))), ("other", save)):
        (folder / part / "ants").mkdir(parents=True)
        write(folder / part / "ants/0")
        for empty in ("bees", "cats"):
            (folder / part / empty).mkdir()
    return [predict(pictures, folder / part)["embedding"][0] for part in ("plain", "other")]


def apart(pair):
    return float(numpy.abs(pair[0] - pair[1]).max() / numpy.abs(pair[0]).max())


def test_sixteen_bits_cmyk_and_turned_pictures_are_what_a_person_sees(pictures):
    train(pictures)
    upright = picture(5)

    def sixteen(path):
        grey = numpy.asarray(upright.convert("L"), dtype=numpy.uint16) * 257
        Image.fromarray(grey).save(path.with_suffix(".png"))

    def eight(path):
        upright.convert("L").save(path.with_suffix(".png"))

    def cmyk(path):
        upright.convert("CMYK").save(path.with_suffix(".jpg"), quality=100, subsampling=0)

    def turned(path):
        exif = Image.Exif()
        exif[0x0112] = 6  # stored on its side: to be turned a quarter clockwise
        upright.transpose(Image.Transpose.ROTATE_90).save(path.with_suffix(".jpg"), quality=100, subsampling=0, exif=exif)

    def wrong(path):
        picture(6).save(path.with_suffix(".png"))

    control = apart(embeddings_of(pictures, "wrong", wrong))
    assert control > 0.1, "another picture has another embedding"
    assert apart(embeddings_of(pictures, "cmyk", cmyk)) < 0.2 * control
    assert apart(embeddings_of(pictures, "turned", turned)) < 0.2 * control
    [_, deep], [_, flat] = embeddings_of(pictures, "sixteen", sixteen), embeddings_of(pictures, "eight", eight)
    assert apart([flat, deep]) < 1e-4
    # And as it is stored, where that is asked for.
    stored = [predict(pictures, pictures / "turned" / part, "model.validation_ds.exif_rotation=false")["embedding"][0] for part in ("plain", "other")]
    assert apart(stored) > 0.2 * control


def test_labels_that_do_not_match_are_refused_before_a_step(pictures):
    shutil.rmtree(pictures / "validation/bees")
    said = train(pictures, code=3)
    assert "missing there: bees" in said and not list(pictures.glob("run/checkpoints/step-*"))


def test_more_classes_than_the_model_has_are_said_with_both_numbers(pictures):
    said = train(pictures, "model.num_classes=2", code=3)
    assert "model.num_classes is 2" in said and "label 2" in said and "expected 0 to 1" in said, said


def test_a_table_without_labels_or_with_names_that_are_not_there(pictures):
    table = pictures / "train.csv"
    table.write_text("path,label\ntrain/ants/0.png,ants\ntrain/bees/0.png,\n")
    said = train(pictures, f"model.train_ds.path={table}", code=3)
    assert "train.csv" in said and "path or label is empty" in said and ":3" in said or "line 3" in said, said
    lines = ["path,label"] + [f"train/{name}/{i}.png,{name}" for name in ("ants", "bees", "cats") for i in range(8)] + ["train/cats/none.png,cats"]
    table.write_text("\n".join(lines) + "\n")
    train(pictures, f"model.train_ds.path={table}", "model.train_ds.max_bad_fraction=0.1")
    [bad] = bad_samples(pictures)
    assert bad["name"].endswith("none.png")


def test_embeddings_that_are_not_finite_are_said_and_the_run_goes_on(pictures):
    """Weights of NaN in a checkpoint that is only looked at: no metric is invented."""
    train(pictures)
    [newest] = sorted((pictures / "run/checkpoints").glob("step-*"))[-1:]
    named = safetensors.numpy.load_file(newest / "model.safetensors")
    head = "head.norm.weight"
    named[head] = named[head] * numpy.float32("nan")
    safetensors.numpy.save_file(named, pictures / "nan.safetensors")
    done = subprocess.run([REDLINE, "--json", "eval", str(pictures / "run"), "--checkpoint", str(pictures / "nan.safetensors")], capture_output=True, text=True, timeout=120)
    assert "9 of 9 embeddings hold values that are not finite" in done.stderr, done.stderr
    assert "recall_at_1" not in done.stdout


def test_a_k_larger_than_the_set_is_left_out_in_words(pictures):
    said = train(pictures, "model.monitor.separation_every_n_epochs=1", "model.monitor.recall_at=[1,8,50]")
    assert "recall@50 needs more than 50 embeddings; there are 24: left out" in said, said
    text = (pictures / "run/metrics.jsonl").read_text()
    assert "separation/train_recall_at_8" in text and "recall_at_50" not in text
