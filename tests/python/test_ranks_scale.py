"""What ranks say of themselves: the exchange of gradients in the record, a straggler by name, views of ranks, and the forecast for more of them."""
import json
import re

import pytest
from rank_jobs import finish, make_home, launch, ranks_by_hand, run, start


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    return make_home(tmp_path_factory.mktemp("ranks"))


@pytest.fixture(scope="module")
def two(home):
    launch(home, 2, "vae.yaml", f"--run-dir={home}/two", "trainer.max_steps=60", "trainer.strategy.bucket_cap_mb=0.05")
    return home / "two"


def ask(home, *words, code=0):
    process = start(home, *words)
    out, err = process.communicate(timeout=60)
    assert process.returncode == code, (out, err)
    return out if code == 0 else err


def events(folder, kind):
    return [e["fields"] for e in map(json.loads, (folder / "events.jsonl").read_text().splitlines()[1:]) if e["kind"] == kind]


def test_the_record_holds_the_exchange_of_gradients(two):
    for folder in (two, two / "ranks/1"):
        timelines = events(folder, "ranks.timeline")
        assert len(timelines) >= 50
        for one in timelines:
            buckets = [tuple(map(int, b.split(":"))) for b in one["buckets"].split()]
            assert len(buckets) > 1 and all(0 <= ready <= done for _, ready, done in buckets)
            assert buckets[-1][1] == one["backward_ns"] <= one["end_ns"]
            assert one["exposed_ns"] == one["end_ns"] - one["backward_ns"]
            assert one["overlapped_ns"] <= one["backward_ns"] and one["own_ns"] >= 0
            assert 1 <= one["exchanges"] <= 12
    names = {json.loads(line).get("name") for line in (two / "metrics.jsonl").read_text().splitlines()}
    assert {"reduce_exposed_seconds", "reduce_overlapped_seconds"} <= names
    usual = sorted(one["exchanges"] for one in events(two, "ranks.timeline"))
    assert usual[len(usual) // 2] == 1, "a step asks the others once"


def test_a_forecast(home, two):
    words = ["scale", two, "--ranks", "2,8,64,1024", "--bandwidth", "10Gbit", "--latency", "50us"]
    answer = json.loads(ask(home, "--json", *words))
    assert answer["basis"]["measured"] and answer["basis"]["ranks"] == 2
    points = {p["ranks"]: p for p in answer["points"]}
    assert set(points) == {2, 8, 64, 1024}
    for one in points.values():
        assert one["samples_per_second_interval"]["low"] < one["samples_per_second"] < one["samples_per_second_interval"]["high"]
        assert 0 < one["efficiency"] <= 1
    assert points[1024]["efficiency"] < points[64]["efficiency"] < points[8]["efficiency"]
    slower = json.loads(ask(home, "--json", *words[:4], "--bandwidth", "10Mbit", "--latency", "1ms"))
    assert slower["points"][1]["samples_per_second"] < points[8]["samples_per_second"]
    assert slower["stops_paying_at"] <= answer["stops_paying_at"]
    tree = json.loads(ask(home, "--json", *words, "--topology", "tree"))["points"][3]
    assert tree["exposed_seconds"] < points[1024]["exposed_seconds"], "little data on many ranks: a tree has fewer messages"
    noisy = json.loads(ask(home, "--json", *words, "--noise-scale", "1000"))["points"]
    assert noisy[1]["worth"] == pytest.approx((1000 + answer["basis"]["samples_per_step"]) / (1000 + noisy[1]["batch"]))
    text = ask(home, *words)
    assert "stops paying at" in text and "samples/s" in text


def test_a_forecast_from_one_process_says_what_it_assumes(home):
    run(home, "train", "vae.yaml", f"--run-dir={home}/one")
    answer = json.loads(ask(home, "--json", "scale", home / "one", "--ranks", "4"))
    assert not answer["basis"]["measured"] and "assumed" in answer["notes"][0]
    point = answer["points"][0]
    assert point["samples_per_second_interval"]["low"] < 0.9 * point["samples_per_second"]


def test_wrong_questions(home, two):
    for words in (["--ranks", "0"], ["--ranks", "two"], ["--bandwidth", "fast"], ["--latency", "-1s"], ["--topology", "star"]):
        assert words[0] in ask(home, "scale", two, *words, code=2)
    assert "There is no run" in ask(home, "scale", home / "nothing", code=3)


def test_a_straggler_is_named_with_what_slows_it(home, tmp_path):
    words = ["train", "vae.yaml", f"--run-dir={tmp_path}/run", "trainer.max_steps=90"]
    texts = finish(ranks_by_hand(home, [(words, {}), (words, {"REDLINE_FAULTS": "delay.wait@12"})]), [0, 0])
    assert len(re.findall("Rank 1 is a straggler", texts[0])) == 1 and "What is slower is wait" in texts[0], texts[0]
    assert "straggler" not in texts[1]
    found = events(tmp_path / "run", "rank.straggler")
    assert len(found) == 1
    report = json.loads(ask(home, "--json", "report", tmp_path / "run"))["runs"][0]["ranks"]
    own = [one["own_seconds"] for one in report["ranks"]]
    assert own[1] > own[0] + 0.010 and report["ranks"][0]["wait_seconds"] > report["ranks"][1]["wait_seconds"]
    assert report["ranks"][1]["phases"]["wait"] > 0.010
    for command in ("report", "doctor"):
        text = ask(home, command, tmp_path / "run")
        assert "A free network gives at most" in text and "Rank 1 was a straggler" in text


def test_equal_ranks_have_no_straggler(home, two):
    assert not events(two, "rank.straggler")
    assert "straggler" not in ask(home, "report", two)
