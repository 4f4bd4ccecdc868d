"""What is wrong with a nuScenes data set or the sizes of a Lift-Splat job is said with file and token, before anything is written; a lost picture costs one sample."""
import json
import pathlib
import shutil

import pytest
from lss_job import make_job, make_scenes, redline


@pytest.fixture(scope="module")
def scenes(tmp_path_factory):
    return make_scenes(tmp_path_factory.mktemp("scenes") / "set")


@pytest.fixture
def copy(scenes, tmp_path):
    return shutil.copytree(scenes, tmp_path / "set")


def table(folder, name):
    return pathlib.Path(folder) / "v1.0-mini" / f"{name}.json"


def change(folder, name, how):
    rows = json.loads(table(folder, name).read_text())
    told = how(rows)
    table(folder, name).write_text(json.dumps(rows))
    return told


def train(tmp_path, scenes, *words, code):
    run = tmp_path / "run"
    done = redline("train", make_job(tmp_path, scenes), *words, "--run-dir", run, code=code)
    return run, done.stdout + done.stderr


def refused(tmp_path, scenes, *words, code=3):
    run, said = train(tmp_path, scenes, *words, code=code)
    assert not (run / "checkpoints").exists() and not (run / "steps.bin").exists(), "nothing was begun"
    assert "InternalError" not in said
    return said


@pytest.mark.parametrize("name", ["scene", "sample", "sample_data", "sensor", "calibrated_sensor", "ego_pose", "sample_annotation", "instance", "category"])
def test_a_missing_table(tmp_path, copy, name):
    table(copy, name).unlink()
    said = refused(tmp_path, copy)
    assert f"{name}.json" in said and "missing" in said


PARTNERS = [("sample_data", "calibrated_sensor_token", "calibrated_sensor.json"), ("sample_annotation", "instance_token", "instance.json"),
            ("calibrated_sensor", "sensor_token", "sensor.json"), ("instance", "category_token", "category.json"), ("sample", "scene_token", "scene.json")]


@pytest.mark.parametrize("name, field, partner", PARTNERS)
def test_a_token_without_a_partner(tmp_path, copy, name, field, partner):
    def lose(rows):
        for row in rows:
            row[field] = "f" * 32
        return {row["token"] for row in rows}
    tokens = change(copy, name, lose)
    said = refused(tmp_path, copy)
    assert f"{name}.json" in said and partner in said and "f" * 32 in said
    assert any(token in said for token in tokens)


def test_the_lidars_pose_without_a_partner(tmp_path, copy):
    change(copy, "ego_pose", list.clear)
    said = refused(tmp_path, copy)
    assert "ego_pose.json" in said and "sample_data.json" in said


def bad_samples(run):
    return [json.loads(line) for line in (run / "bad_samples.jsonl").read_text().splitlines() if "token" in line]


def picture_of(copy):
    rows = json.loads(table(copy, "sample_data").read_text())
    scenes = {s["token"]: s["name"] for s in json.loads(table(copy, "scene").read_text())}
    of_sample = {s["token"]: scenes[s["scene_token"]] for s in json.loads(table(copy, "sample").read_text())}
    row = next(r for r in rows if "CAM_FRONT/" in r["filename"] and of_sample[r["sample_token"]] == "scene-0061")
    return row, pathlib.Path(copy) / row["filename"]


@pytest.mark.parametrize("how", ["missing", "size", "no picture", "empty"])
def test_a_lost_or_wrong_picture_costs_one_sample_and_is_named(tmp_path, copy, how):
    row, file = picture_of(copy)
    if how == "missing":
        file.unlink()
    elif how == "size":
        from PIL import Image
        Image.new("RGB", (80, 64)).save(file)
    else:
        file.write_bytes(b"not a picture" if how == "no picture" else b"")
    run, said = train(tmp_path, copy, code=0)
    assert row["token"] in said and row["filename"] in said
    if how == "size":
        assert "80 x 64" in said and "160 x 90" in said
    assert len({json.dumps(one) for one in bad_samples(run)}) >= 1
    assert all(row["token"] in json.dumps(one) for one in bad_samples(run)), "no other sample suffered"
    steps = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()[1:]]
    assert max(s["step"] for s in steps) == 6, "the run went to its end"


@pytest.mark.parametrize("name", ["calibrated_sensor", "ego_pose", "sample_annotation"])
def test_a_rotation_that_is_none(tmp_path, copy, name):
    def turn(rows):
        for row in rows:
            row["rotation"] = [1.0, 1.0, 0.0, 0.0]
        return {row["token"] for row in rows}
    tokens = change(copy, name, turn)
    said = refused(tmp_path, copy)
    assert f"{name}.json" in said and "length 1 was expected" in said and any(token in said for token in tokens)


def test_no_annotations_are_an_empty_map_and_said(tmp_path, copy):
    change(copy, "sample_annotation", list.clear)
    run, said = train(tmp_path, copy, code=0)
    assert "all maps are empty" in said and str(table(copy, "x").parent) in said
    values = {row["name"]: row["value"] for row in map(json.loads, (run / "metrics.jsonl").read_text().splitlines()[1:])}
    assert values["val_aacc"] <= 1.0


@pytest.mark.parametrize("words, code, expected", [
    (["model.nuscenes.train_split=trian"], 2, ["trian", "mini_train"]),
    (["model.nuscenes.train_split=scene-0001"], 3, ["scene-0001", "v1.0-mini"]),
    (["model.nuscenes.version=v1.0-trainval"], 3, ["v1.0-trainval", "there: v1.0-mini"]),
    (["model.image_size=[32,70]"], 2, ["[32, 70]", "multiples of 32", "[32, 64]"]),
    (["model.image_size=[40,64]"], 2, ["[40, 64]", "multiples of 32"]),
    (["model.grid.xbound=[-30,30,4]"], 2, ["model.grid.xbound", "15 cells", "multiples of 8"]),
    (["model.grid.ybound=[-32,32,5]"], 2, ["model.grid.ybound", "12 cells", "multiples of 8"]),
    (["model.nuscenes.cams=[CAM_FRONT,CAM_ROOF]", "model.nuscenes.ncams=2"], 3, ["CAM_ROOF"]),
])
def test_sizes_and_splits_that_do_not_fit(tmp_path, scenes, words, code, expected):
    said = refused(tmp_path, scenes, *words, code=code)
    assert all(part in said for part in expected), said


def test_the_same_job_without_a_fault_trains(tmp_path, scenes):
    run, said = train(tmp_path, scenes, code=0)
    assert "Bad sample" not in said and not (run / "bad_samples.jsonl").exists()
