"""The real tensorboard reads what redline writes: scalars, histograms, images, text; torn tails; a resumed run's points win."""
import os
import pathlib
import subprocess

import numpy
import pytest

BUILD = pathlib.Path(os.environ.get("REDLINE_BUILD", pathlib.Path(__file__).resolve().parents[2] / "build"))


def write_sample(folder):
    program = BUILD / "src/measure/measure_test"
    assert program.exists(), f"{program} is built by `make build`"
    subprocess.run([program, "--gtest_filter=EventFileSample.*"], check=True, env={**os.environ, "REDLINE_SAMPLE_DIR": str(folder)},
                   stdout=subprocess.DEVNULL)


@pytest.fixture(scope="module")
def sample(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tb")
    write_sample(folder)
    return folder


def load(folder):
    from tensorboard.backend.event_processing import event_accumulator as ea
    accumulator = ea.EventAccumulator(str(folder), size_guidance={ea.SCALARS: 0, ea.HISTOGRAMS: 0, ea.IMAGES: 0, ea.TENSORS: 0})
    accumulator.Reload()
    return accumulator


def test_scalars_and_the_resumed_run_wins(sample):
    points = load(sample / "run").Scalars("loss")
    # The first process wrote steps 1..5; the second resumed after step 3 and wrote 4..6 again.
    assert [p.step for p in points] == [1, 2, 3, 4, 5, 6]
    assert [p.value for p in points] == [1, 2, 3, 40, 50, 60]


def test_histogram(sample):
    event, = load(sample / "run").Histograms("weights")
    histogram = event.histogram_value
    values = numpy.arange(-50, 51, dtype=numpy.float32) / 10
    assert event.step == 2
    assert histogram.num == len(values)
    assert histogram.min == pytest.approx(-5) and histogram.max == pytest.approx(5)
    assert histogram.sum_squares == pytest.approx(float((values.astype(float) ** 2).sum()))
    assert sum(histogram.bucket) == len(values)
    limits = numpy.array(histogram.bucket_limit)
    assert (numpy.diff(limits) > 0).all()
    for low, high, count in zip(limits[:-1], limits[1:], histogram.bucket[1:]):
        assert count == ((values > low) & (values <= high)).sum()


def test_image(sample):
    import io

    from PIL import Image
    event, = load(sample / "run").Images("picture")
    assert (event.width, event.height) == (3, 2)
    picture = Image.open(io.BytesIO(event.encoded_image_string))
    assert picture.size == (3, 2)
    assert picture.convert("RGB").getpixel((1, 0)) == (0, 255, 0)


def test_text(sample):
    accumulator = load(sample / "run")
    assert accumulator.summary_metadata["note"].plugin_data.plugin_name == "text"
    event, = accumulator.Tensors("note")
    assert [s.decode() for s in event.tensor_proto.string_val] == ["**bold** und Grüße"]


def test_a_torn_tail_costs_only_its_record(sample, tmp_path):
    first = sorted((sample / "run").iterdir())[0]
    whole = first.read_bytes()
    reached = []
    for size in [*range(len(whole) - 120, len(whole), 7), len(whole)]:
        folder = tmp_path / str(size)
        folder.mkdir()
        (folder / first.name).write_bytes(whole[:size])
        reached.append(len(load(folder).Scalars("loss")))
    assert reached == sorted(reached)
    assert reached[0] < reached[-1] == 5
