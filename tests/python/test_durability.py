"""What Python's own safetensors and torch say about redline's files, and what redline says about theirs."""
import io
import json
import os
import subprocess
import tarfile

import numpy as np
import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file

REDLINE = os.environ.get("REDLINE", "build/redline")


def redline(*words, code=0):
    done = subprocess.run([REDLINE, *map(str, words)], capture_output=True, text=True)
    assert done.returncode == code, (words, done.returncode, done.stdout, done.stderr)
    return done


DTYPES = [torch.bool, torch.uint8, torch.int8, torch.int16, torch.uint16, torch.int32, torch.uint32, torch.int64, torch.uint64, torch.float16,
          torch.bfloat16, torch.float32, torch.float64, torch.float8_e4m3fn, torch.float8_e5m2, torch.complex64]


def all_kinds():
    generator = torch.Generator().manual_seed(1)
    tensors = {}
    for dtype in DTYPES:
        raw = torch.randint(0, 2 if dtype is torch.bool else 256, (3, 5, 16), dtype=torch.uint8, generator=generator)
        tensors[f"kind.{str(dtype).removeprefix('torch.')}"] = raw.view(dtype)
    tensors["scalar"] = torch.tensor(3.5)
    tensors["empty"] = torch.empty(0, 7)
    tensors["ключ/naïve \"quoted\"\n"] = torch.arange(4.0)
    return tensors


def raw_bytes(tensor):
    return tensor.contiguous().reshape(-1).view(torch.uint8).numpy().tobytes() if tensor.numel() else b""


def assert_same(expected, found):
    assert expected.keys() == found.keys()
    for name, tensor in expected.items():
        assert (tensor.dtype, tensor.shape) == (found[name].dtype, found[name].shape), name
        assert raw_bytes(tensor) == raw_bytes(found[name]), name


def test_python_reads_what_redline_writes_and_the_reverse(tmp_path):
    expected = all_kinds()
    save_file(expected, tmp_path / "python.safetensors", metadata={"format": "pt"})
    redline("convert", "safetensors", tmp_path / "python.safetensors", tmp_path / "redline.safetensors")
    assert_same(expected, load_file(tmp_path / "redline.safetensors"))
    with safe_open(tmp_path / "redline.safetensors", framework="np") as file:  # another reader of the same library
        assert np.array_equal(file.get_tensor("kind.float64").view(np.uint8), expected["kind.float64"].numpy().view(np.uint8))
    report = json.loads(redline("--json", "verify", tmp_path / "redline.safetensors").stdout)
    assert report["damaged"] == 0 and report["items"][0]["tensors"] == len(expected)


def test_ten_thousand_tensors(tmp_path):
    expected = {f"layer.{i}.weight": torch.full((3,), float(i)) for i in range(10_000)}
    save_file(expected, tmp_path / "many.safetensors")
    redline("convert", tmp_path / "many.safetensors", tmp_path / "out.safetensors")
    assert_same(expected, load_file(tmp_path / "out.safetensors"))


def test_torch_checkpoints(tmp_path):
    weights = {"module.a.weight": torch.randn(4, 3), "module.a.bias": torch.randn(4).half()}
    weights["module.tied"] = weights["module.a.weight"]
    torch.save({"epoch": 3, "state_dict": weights, "model_ema": {"a": torch.ones(2)}}, tmp_path / "last.ckpt")
    redline("convert", "torch", tmp_path / "last.ckpt", tmp_path / "plain.safetensors", "--rename-prefix", "module.=")
    assert_same({name.removeprefix("module."): value for name, value in weights.items()}, load_file(tmp_path / "plain.safetensors"))
    redline("convert", "torch", tmp_path / "last.ckpt", tmp_path / "ema.safetensors", "--key", "model_ema")
    assert_same({"a": torch.ones(2)}, load_file(tmp_path / "ema.safetensors"))
    redline("convert", tmp_path / "plain.safetensors", tmp_path / "back.pt", "--dtype", "F32")
    back = torch.load(tmp_path / "back.pt", weights_only=True)
    assert back["a.bias"].dtype == torch.float32 and torch.equal(back["a.weight"], weights["module.a.weight"])
    assert sorted(os.listdir(tmp_path)) == ["back.pt", "ema.safetensors", "last.ckpt", "plain.safetensors"]


def make_nemo(path, weights, config=b"name: tiny\n", mode="w"):
    buffer = io.BytesIO()
    torch.save(weights, buffer)
    with tarfile.open(path, mode) as archive:
        for name, content in (("./model_config.yaml", config), ("./model_weights.ckpt", buffer.getvalue())):
            info = tarfile.TarInfo(name)
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))


@pytest.mark.parametrize("mode", ["w", "w:gz"])
def test_nemo_there_and_back(tmp_path, mode):
    weights = {"encoder.layers.0.norm.weight": torch.randn(8), "quantizer.codebooks": torch.randn(1, 4, 2, dtype=torch.float64)}
    make_nemo(tmp_path / "model.nemo", weights, mode=mode)
    redline("convert", "nemo", tmp_path / "model.nemo", tmp_path / "out.safetensors")
    assert_same(weights, load_file(tmp_path / "out.safetensors"))
    assert (tmp_path / "out.yaml").read_text() == "name: tiny\n"
    redline("convert", "nemo", tmp_path / "out.safetensors", tmp_path / "again.nemo", "--config", tmp_path / "out.yaml")
    redline("convert", "nemo", tmp_path / "again.nemo", tmp_path / "again.safetensors")
    assert_same(weights, load_file(tmp_path / "again.safetensors"))


class Evil:
    def __reduce__(self):
        return os.system, ("touch " + os.environ["EVIL_MARK"],)


def test_pickles_that_want_to_run_code_are_refused(tmp_path, monkeypatch):
    mark = tmp_path / "mark"
    monkeypatch.setenv("EVIL_MARK", str(mark))
    torch.save({"state_dict": {"a": torch.ones(1), "b": Evil()}}, tmp_path / "evil.pt")
    make_nemo(tmp_path / "evil.nemo", {"a": Evil()})
    for name in ("evil.pt", "evil.nemo"):
        said = redline("convert", tmp_path / name, tmp_path / "out.safetensors", code=1).stderr
        assert "weights_only" in said
        assert not mark.exists() and not (tmp_path / "out.safetensors").exists()


def test_bad_input_is_named(tmp_path):
    assert "check the path" in redline("convert", tmp_path / "nothing.pt", tmp_path / "o.safetensors", code=2).stderr
    assert "Unknown format" in redline("convert", "onnx", "a", "b", code=2).stderr
    torch.save([1, 2], tmp_path / "list.pt")
    assert "not a dictionary" in redline("convert", tmp_path / "list.pt", tmp_path / "o.safetensors", code=1).stderr
    (tmp_path / "junk.safetensors").write_bytes(b"\xff" * 64)
    assert "refused" in redline("verify", tmp_path / "junk.safetensors", code=4).stdout
    save_file({"a": torch.ones(1), "b.a": torch.ones(1)}, tmp_path / "two.safetensors")
    assert "twice" in redline("convert", tmp_path / "two.safetensors", tmp_path / "o.safetensors", "--rename-prefix", "b.=", code=2).stderr


def test_diff_of_weights(tmp_path):
    a = {"w": torch.arange(6.0), "n": torch.ones(2)}
    b = {"w": torch.arange(6.0), "n": torch.ones(2)}
    b["w"][4] += 0.5
    save_file(a, tmp_path / "a.safetensors")
    save_file(b, tmp_path / "b.safetensors")
    assert "equal bit for bit" in redline("diff", tmp_path / "a.safetensors", tmp_path / "a.safetensors").stdout
    answer = json.loads(redline("--json", "diff", tmp_path / "a.safetensors", tmp_path / "b.safetensors", code=1).stdout)
    assert answer["different_tensors"] == [{"part": "model", "name": "w", "what": "values", "elements": 1, "of": 6, "largest": 0.5}]
