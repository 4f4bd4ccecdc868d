"""redline data as a user types it: generate, look, measure, pack; and what bad input gets."""
import json
import os
import pathlib
import subprocess
import tarfile

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
REDLINE = os.environ.get("REDLINE", str(ROOT / "build/redline"))


def redline(*words, cwd):
    return subprocess.run([REDLINE, *map(str, words)], capture_output=True, text=True, cwd=cwd, timeout=60, stdin=subprocess.DEVNULL)


def answer(*words, cwd):
    done = redline(*words, "--json", cwd=cwd)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Generated speech, sequences and pictures, and a file of data-set keys for each."""
    path = tmp_path_factory.mktemp("data")
    answer("data", "synth", "speech", "--out", "speech", "--num", 50, "--seed", 1, "--median_seconds", 0.6, "--min_seconds", 0.3, cwd=path)
    answer("data", "synth", "sequences", "--out", "sequences", "--num", 300, "--seed", 1, cwd=path)
    answer("data", "synth", "images", "--out", "images", "--num", 30, "--seed", 1, "--width", 32, "--height", 24, cwd=path)
    (path / "speech.yaml").write_text("manifest_filepath: speech/train_manifest.json\nbatch_size: 4\nshuffle: true\nseed: 3\n")
    (path / "sequences.yaml").write_text("path: sequences/train\nbatch_size: 16\nshuffle: true\nseed: 3\ncolumns: [tokens]\n")
    (path / "images.yaml").write_text("path: images/train\nbatch_size: 8\nshuffle: true\nseed: 3\nimage_size: 16\n")
    return path


def samples(order):
    return [batch["samples"] for batch in order["batches"]]


def test_order_is_a_shuffle_that_epochs_redraw(folder):
    first = answer("data", "order", "speech.yaml", cwd=folder)
    ids = sum(samples(first), [])
    assert sorted(ids) == list(range(50)) and ids != sorted(ids)
    assert [len(batch) for batch in samples(first)] == [4] * 12 + [2]
    assert samples(answer("data", "order", "speech.yaml", cwd=folder)) == samples(first)
    second = answer("data", "order", "speech.yaml", "--epoch", 1, cwd=folder)
    assert sorted(sum(samples(second), [])) == sorted(ids) and samples(second) != samples(first)
    assert second["plan_hash"] == first["plan_hash"] and second["order_hash"] != first["order_hash"]


def test_skip_is_the_rest(folder):
    whole = answer("data", "order", "speech.yaml", cwd=folder)
    rest = answer("data", "order", "speech.yaml", "--skip", 5, cwd=folder)
    assert rest["batches"] == [batch for batch in whole["batches"] if batch["step"] >= 5]
    assert answer("data", "order", "speech.yaml", "--skip", 99, cwd=folder)["batches"] == []


@pytest.mark.parametrize("ranks", [2, 3])
def test_ranks_share_out_each_step(folder, ranks):
    whole = answer("data", "order", "speech.yaml", cwd=folder)
    parts = [answer("data", "order", "speech.yaml", "--ranks", ranks, "--rank", rank, cwd=folder) for rank in range(ranks)]
    assert len({part["steps"] for part in parts}) == 1
    for step, batch in enumerate(samples(whole)):
        if len(batch) < ranks:
            continue
        shared = sum((b["samples"] for part in parts for b in part["batches"] if b["step"] == step), [])
        assert sorted(shared) == sorted(batch)


@pytest.mark.parametrize("kind", ["speech", "sequences", "images"])
def test_bench_has_the_same_order_for_any_number_of_workers(folder, kind):
    seen = [answer("data", "bench", f"{kind}.yaml", "--workers", workers, "--batches", 6, cwd=folder) for workers in (0, 2, 8)]
    assert len({figures["order_hash"] for figures in seen}) == 1
    for figures in seen:
        assert figures["batches"] == 6 and figures["samples_per_second"] > 0 and figures["bad_samples"] == 0
        for key in ("cpu_seconds_per_1000_samples", "peak_memory_bytes", "first_batch_seconds", "wait_p50_seconds", "wait_p99_seconds", "padding_share"):
            assert figures[key] >= 0, key
        assert set(figures["stage_seconds"]) >= {"read", "decode", "transform", "collate"}
    assert ("audio_seconds_per_second" in seen[0]) == (kind == "speech")


def test_the_cache_hits_from_the_second_epoch_on(folder):
    cold = answer("data", "bench", "speech.yaml", "cache=disk", "cache_dir=kept", "--workers", 0, "--batches", 10, cwd=folder)
    warm = answer("data", "bench", "speech.yaml", "cache=disk", "cache_dir=kept", "--workers", 0, "--batches", 10, cwd=folder)
    other = answer("data", "bench", "speech.yaml", "cache=disk", "cache_dir=kept", "sample_rate=8000", "--workers", 0, "--batches", 10, cwd=folder)
    assert (cold["cache_hit_share"], warm["cache_hit_share"], other["cache_hit_share"]) == (0, 1, 0)
    assert "cache_hit_share" not in answer("data", "bench", "speech.yaml", "--batches", 2, cwd=folder)


def test_stats_say_what_buckets_save(folder):
    stats = answer("data", "stats", "speech.yaml", "--batch-sizes", "1,8", cwd=folder)
    durations = [json.loads(line)["duration"] for line in (folder / "speech/train_manifest.json").read_text().splitlines()]
    assert stats["unit"] == "seconds" and stats["samples"] == 50
    assert stats["lengths"]["total"] == pytest.approx(sum(durations)) and stats["lengths"]["max"] == max(durations)
    one, eight = stats["padding"]
    assert one == {"batch_size": 1, "share": 0, "share_with_buckets": 0}
    assert 0 < eight["share_with_buckets"] < eight["share"] < 1


def test_filters_are_counted(folder):
    stats = answer("data", "stats", "speech.yaml", "max_duration=0.6", cwd=folder)
    durations = [json.loads(line)["duration"] for line in (folder / "speech/train_manifest.json").read_text().splitlines()]
    assert stats["filtered"] == {"kept": sum(d <= 0.6 for d in durations), "too_short": 0, "too_long": sum(d > 0.6 for d in durations)}
    ids = sum(samples(answer("data", "order", "speech.yaml", "max_duration=0.6", cwd=folder)), [])
    assert sorted(ids) == [i for i, d in enumerate(durations) if d <= 0.6]


@pytest.mark.parametrize("form, config", [
    ("nemo", "manifest_filepath: OUT/tarred_audio_manifest.json\nis_tarred: true\ntarred_audio_filepaths: OUT/audio__OP_0..2_CL_.tar\n"),
    ("webdataset", "path: 'OUT/shard-{000000..000002}.tar'\n"),
])
def test_tars_hold_every_clip(folder, form, config):
    out = f"tars_{form}"
    packed = answer("data", "tar", "speech/train_manifest.json", "--out", out, "--format", form, "--num-shards", 3, cwd=folder)
    assert packed["shards"] == 3 and packed["entries"] + packed["dropped"] == 50
    tars = sorted((folder / out).glob("*.tar"))
    audio = [member for tar in tars for member in tarfile.open(tar).getnames() if member.endswith(".flac")]
    assert len(tars) == 3 and len(audio) == packed["entries"]
    index = answer("data", "index", *tars, cwd=folder)
    assert sum(tar["samples"] for tar in index["tars"]) == packed["entries"]
    (folder / f"{out}.yaml").write_text(config.replace("OUT", out) + "batch_size: 4\nshuffle: true\n")
    ids = sum(samples(answer("data", "order", f"{out}.yaml", cwd=folder)), [])
    assert sorted(ids) == list(range(packed["entries"]))
    assert answer("data", "bench", f"{out}.yaml", "--batches", 5, cwd=folder)["bad_samples"] == 0


def test_synth_gives_the_same_bytes_again(folder, tmp_path):
    answer("data", "synth", "speech", "--out", "again", "--num", 50, "--seed", 1, "--median_seconds", 0.6, "--min_seconds", 0.3, cwd=tmp_path)
    answer("data", "synth", "speech", "--out", "other", "--num", 50, "--seed", 2, "--median_seconds", 0.6, "--min_seconds", 0.3, cwd=tmp_path)
    clip = "train/000/000007.flac"
    assert (tmp_path / "again" / clip).read_bytes() == (folder / "speech" / clip).read_bytes()
    assert (tmp_path / "other" / clip).read_bytes() != (folder / "speech" / clip).read_bytes()


def test_a_job_and_its_data_set_agree(folder):
    """A whole job's data is read as training reads it: the recipe's own keys, overrides included."""
    order = answer("data", "order", ROOT / "recipes/sequence_vae.yaml", f"model.train_ds.path={folder}/sequences/train", "model.train_ds.synth=null",
                   "--limit", 2, cwd=folder)
    assert all(0 <= i < 300 for batch in samples(order) for i in batch) and len(order["batches"]) >= 2


@pytest.mark.parametrize("words, code, says", [
    (["order"], 2, "recipe"),
    (["order", "gone.yaml"], 2, "gone.yaml"),
    (["order", "speech.yaml", "--rank", 3], 2, "--rank"),
    (["order", "speech.yaml", "--epoch", -1], 2, "--epoch"),
    (["order", "speech.yaml", "batch_sise=4"], 2, "batch_size"),
    (["order", "speech.yaml", "--kind", "video"], 2, "audio"),
    (["order", "speech.yaml", "--kind", "images"], 2, "manifest_filepath"),
    (["order", "speech.yaml", "manifest_filepath=gone.json"], 3, "gone.json"),
    (["stats", "speech.yaml", "manifest_filepath=speech.yaml"], 3, "speech.yaml:1"),
    (["bench", "speech.yaml", "--workers", 65], 2, "--workers"),
    (["bench", "speech.yaml", "--seconds", 0], 2, "--seconds"),
    (["bench", "speech.yaml", "max_duration=0.01"], 3, "max_duration"),
    (["index", "speech.yaml"], 3, "speech.yaml"),
    (["index", "gone.tar"], 3, "gone.tar"),
    (["tar", "gone.json", "--out", "x"], 3, "gone.json"),
    (["tar", "speech/train_manifest.json", "--out", "x", "--num-shards", 0], 2, "--num-shards"),
    (["tar", "speech/train_manifest.json", "--out", "x", "--format", "zip"], 2, "webdataset"),
    (["synth", "video", "--out", "x"], 2, "sequences"),
    (["synth", "speech"], 2, "--out"),
    (["synth", "speech", "--out", "x", "--numm", 3], 2, "num"),
    (["synth", "speech", "--out", "/proc/x", "--num", 3], 7, "/proc/x"),
    (["synth", "speech", "--out", ".", "--num", 3], 2, "were not generated"),
])
def test_bad_input_gets_one_sentence(folder, words, code, says):
    done = redline("data", *words, cwd=folder)
    assert done.returncode == code, done.stderr
    assert done.stdout == "" and says in done.stderr, done.stderr
    assert "internal" not in done.stderr.lower() and len(done.stderr) < 600


@pytest.mark.parametrize("kind, name", [("speech", "train_manifest.json"), ("sequences", "train/part-00000.parquet"), ("images", "train.csv")])
def test_generated_data_replaces_nothing_of_the_users(tmp_path, kind, name):
    """A folder with a file of the user's, also under a name that generated data would have; the control: it may be generated into again once it was."""
    mine = tmp_path / "mine" / name
    mine.parent.mkdir(parents=True)
    mine.write_text("years of work")
    done = redline("data", "synth", kind, "--out", "mine", "--num", 4, cwd=tmp_path)
    assert done.returncode == 2 and "were not generated" in done.stderr, done.stderr
    assert mine.read_text() == "years of work" and [path for path in (tmp_path / "mine").rglob("*") if path.is_file()] == [mine]
    for _ in range(2):
        assert redline("data", "synth", kind, "--out", "generated", "--num", 4, cwd=tmp_path).returncode == 0


def write_manifest(path, entries):
    path.write_text("".join(json.dumps({"audio_filepath": str(name), "duration": 0.5}) + "\n" for name in entries))


def bench_of(manifest, cwd, *words):
    (cwd / "m.yaml").write_text(f"manifest_filepath: {manifest}\nbatch_size: 4\nshuffle: false\n")
    return redline("data", "bench", "m.yaml", "--batches", 3, "--workers", 2, *words, cwd=cwd)


def test_names_that_lead_out_of_the_data_are_refused(folder, tmp_path):
    clips = sorted((folder / "speech/train/000").glob("*.flac"))[:20]
    root = tmp_path / "root"
    root.mkdir()
    for clip in clips:
        (root / clip.name).write_bytes(clip.read_bytes())
    outside = tmp_path / "outside.flac"
    outside.write_bytes(clips[0].read_bytes())
    os.mkfifo(root / "fifo.flac")
    (root / "link.flac").symlink_to("../outside.flac")
    (root / "null.flac").symlink_to("/dev/null")
    good = [clip.name for clip in clips]
    write_manifest(root / "m.json", good)
    assert bench_of(root / "m.json", tmp_path).returncode == 0, "the control: without such names it runs"
    for name in ("../outside.flac", "../../../../../../etc/passwd", "fifo.flac", "link.flac", "null.flac"):
        write_manifest(root / "m.json", [name] + good)
        done = bench_of(root / "m.json", tmp_path)
        assert done.returncode == 3 and name.split("/")[-1] in done.stderr, (name, done.returncode, done.stderr)
    write_manifest(root / "m.json", [outside] + good)
    assert bench_of(root / "m.json", tmp_path).returncode == 0, "a manifest the user names may name absolute files"
    done = bench_of(root / "m.json", tmp_path, "allow_absolute=false")
    assert done.returncode == 3 and "allow_absolute" in done.stderr


def test_too_many_bad_samples_end_with_exit_3(folder, tmp_path):
    (tmp_path / "bad.flac").write_bytes(b"fLaC but not really")
    clips = sorted((folder / "speech/train/000").glob("*.flac"))
    write_manifest(tmp_path / "m.json", [*clips, *["bad.flac"] * 20])
    done = redline("data", "bench", tmp_path / "m.json", cwd=tmp_path)
    assert done.returncode == 2, "a manifest is not a config"
    (tmp_path / "m.yaml").write_text("manifest_filepath: m.json\nbatch_size: 4\nshuffle: true\nmax_bad_fraction: 0.05\n")
    done = redline("data", "bench", "m.yaml", "--seconds", 5, cwd=tmp_path)
    assert done.returncode == 3 and "max_bad_fraction" in done.stderr, done.stderr
    done = redline("data", "bench", "m.yaml", "--batches", 10, "max_bad_fraction=1", "--json", cwd=tmp_path)
    assert done.returncode == 0 and json.loads(done.stdout)["bad_samples"] > 0
