"""Files of others stay small and alone: what the converting child gets, what it may reach, and what a hostile file costs."""
import ctypes
import gzip
import io
import json
import os
import pathlib
import platform
import re
import resource
import signal
import socket
import subprocess
import sys
import tarfile
import time

import pytest
import torch
from safetensors.torch import load_file

ROOT = pathlib.Path(__file__).resolve().parents[2]
REDLINE = os.environ.get("REDLINE", str(ROOT / "build/redline"))


def redline(*words, code=0, **how):
    done = subprocess.run([REDLINE, *map(str, words)], capture_output=True, text=True, timeout=120, **how)
    assert done.returncode == code, (words, done.returncode, done.stdout, done.stderr)
    return done


def fake_python(folder, body):
    """An interpreter that runs `body` instead of the converter; what it prints are its last words."""
    path = folder / "fake_python"
    path.write_text(f"#!{sys.executable} -I\nimport json, os, socket, sys, resource, subprocess\n{body}\nsys.exit(1)\n")
    path.chmod(0o755)
    return path


def told(done):
    return json.loads(re.search(r"\{.*\}", done.stderr).group(0))


@pytest.fixture
def weights(tmp_path):
    torch.save({"w": torch.arange(4.0)}, tmp_path / "in.pt")
    return tmp_path / "in.pt"


def test_the_child_has_nothing_of_ours(tmp_path, weights):
    fake = fake_python(tmp_path, """
print(json.dumps({"env": dict(os.environ), "fds": sorted(map(int, os.listdir("/proc/self/fd"))), "own": os.getsid(0) == os.getpid(),
                  "stdin": os.readlink("/proc/self/fd/0"), "data": resource.getrlimit(resource.RLIMIT_DATA)[1],
                  "file": resource.getrlimit(resource.RLIMIT_FSIZE)[1], "core": resource.getrlimit(resource.RLIMIT_CORE)[1]}))""")
    secret = os.open(weights, os.O_RDONLY)
    done = redline("convert", weights, tmp_path / "o.safetensors", "--memory", "3GiB", code=1, pass_fds=[secret], stdin=subprocess.PIPE,
                   env=dict(os.environ, REDLINE_PYTHON=str(fake), AWS_SECRET_ACCESS_KEY="hunter2", SSH_AUTH_SOCK="/run/agent"))
    os.close(secret)
    assert "hunter2" not in done.stderr
    child = told(done)
    child["env"].pop("LC_CTYPE", None)  # Python's own
    assert child["env"] == {"PATH": "/usr/local/bin:/usr/bin:/bin", "HOME": "/nonexistent", "LANG": "C.UTF-8", "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
    assert child["fds"][:3] == [0, 1, 2] and len(child["fds"]) == 4  # the fourth lists the folder
    assert child["own"] and child["stdin"] == "/dev/null"
    assert child["data"] == child["file"] == 3 << 30 and child["core"] == 0


def forbid(*calls):
    """For preexec_fn: a machine that allows no namespaces ("unshare") or no filters ("filter")."""
    numbers = {"x86_64": (0xC000003E, 272, 157), "aarch64": (0xC00000B7, 97, 167)}[platform.machine()]

    class Step(ctypes.Structure):
        _fields_ = [("code", ctypes.c_ushort), ("yes", ctypes.c_ubyte), ("no", ctypes.c_ubyte), ("k", ctypes.c_uint)]

    class Program(ctypes.Structure):
        _fields_ = [("size", ctypes.c_ushort), ("steps", ctypes.POINTER(Step))]

    load, equal, answer, allow, refuse = 0x20, 0x15, 0x06, 0x7FFF0000, 0x00050001
    steps = [(load, 0, 0, 0)]
    if "unshare" in calls:
        steps += [(equal, 0, 1, numbers[1]), (answer, 0, 0, refuse)]
    if "filter" in calls:
        steps += [(equal, 0, 3, numbers[2]), (load, 0, 0, 16), (equal, 0, 1, 22), (answer, 0, 0, refuse)]
    steps.append((answer, 0, 0, allow))
    array = (Step * len(steps))(*[Step(*step) for step in steps])
    program = Program(len(steps), array)
    libc = ctypes.CDLL(None, use_errno=True)

    def apply():
        if libc.prctl(38, 1, 0, 0, 0) != 0 or libc.prctl(22, 2, ctypes.byref(program), 0, 0) != 0:
            raise OSError(ctypes.get_errno(), "no filter")
    return apply


CALL = """
def reach(family, address):
    try:
        socket.socket(family).connect(address)
        return "reached"
    except OSError as error:
        return type(error).__name__
print(json.dumps({"tcp": reach(socket.AF_INET, ("127.0.0.1", %d))}))"""


@pytest.mark.parametrize("forbidden", [(), ("unshare",), ("filter",)])
def test_the_child_reaches_no_listener(tmp_path, weights, forbidden):
    with socket.create_server(("127.0.0.1", 0)) as server:
        fake = fake_python(tmp_path, CALL % server.getsockname()[1])
        done = redline("convert", weights, tmp_path / "o.safetensors", code=1, env=dict(os.environ, REDLINE_PYTHON=str(fake)), preexec_fn=forbid(*forbidden))
    assert told(done)["tcp"] in ("PermissionError", "OSError"), done.stderr


def test_without_a_way_to_cut_the_network_it_refuses(tmp_path, weights):
    with socket.create_server(("127.0.0.1", 0)) as server:
        fake = fake_python(tmp_path, CALL % server.getsockname()[1])
        how = {"env": dict(os.environ, REDLINE_PYTHON=str(fake)), "preexec_fn": forbid("unshare", "filter")}
        said = redline("convert", weights, tmp_path / "o.safetensors", code=1, **how).stderr
        assert "without network" in said and "--allow-network" in said and "tcp" not in said, said
        # The control: the listener is there, and the flag lets the child go on.
        assert told(redline("convert", weights, tmp_path / "o.safetensors", "--allow-network", code=1, **how))["tcp"] == "reached"


@pytest.mark.parametrize("forbidden", [("unshare",), ("filter",)])
def test_either_way_converts(tmp_path, weights, forbidden):
    redline("convert", weights, tmp_path / "o.safetensors", preexec_fn=forbid(*forbidden))
    assert torch.equal(load_file(tmp_path / "o.safetensors")["w"], torch.arange(4.0))


def measured(*words):
    """Exit code, stderr, the largest resident memory of redline and its children, in MB."""
    process = subprocess.Popen([REDLINE, *map(str, words)], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    said = process.stderr.read()
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    return process.returncode, said, usage.ru_maxrss / 1024


def gz_bomb(path, head, gigabytes=3.2):
    """A tar header and then zeros, as gzip streams one after the other: 3 MB that unpack to gigabytes."""
    zeros = gzip.compress(bytes(64 << 20), 9)
    with open(path, "wb") as out:
        out.write(gzip.compress(head))
        for _ in range(int(gigabytes * 16)):
            out.write(zeros)


def tar_head(name, size, kind=tarfile.REGTYPE):
    info = tarfile.TarInfo(name)
    info.size, info.type = size, kind
    return info.tobuf(tarfile.GNU_FORMAT)


@pytest.mark.parametrize("name, kind, words, flags", [
    ("model_weights.ckpt", tarfile.REGTYPE, "over the limit", []),
    ("anything.bin", tarfile.REGTYPE, "over the limit", []),  # passed over, but unpacked on the way
    ("././@PaxHeader", tarfile.XHDTYPE, "needs more memory", ["--memory", "768MiB"]),  # tarfile itself reads it whole
])
def test_a_small_file_that_unpacks_to_gigabytes_is_refused(tmp_path, name, kind, words, flags):
    gz_bomb(tmp_path / "bomb.nemo", tar_head(name, 3 << 30, kind))
    assert os.path.getsize(tmp_path / "bomb.nemo") < 4 << 20
    code, said, megabytes = measured("convert", tmp_path / "bomb.nemo", tmp_path / "o.safetensors", *flags)
    assert code == 1 and words in said and "bomb.nemo" in said and "--memory" in said, said
    assert megabytes < 1000, megabytes
    assert os.listdir(tmp_path) == ["bomb.nemo"]


def test_a_tensor_that_claims_more_than_it_stores_is_refused(tmp_path):
    torch.save({"w": torch.zeros(1).expand(1 << 34)}, tmp_path / "wide.pt")
    code, said, megabytes = measured("convert", tmp_path / "wide.pt", tmp_path / "o.safetensors")
    assert code == 1 and "over the limit" in said and "wide.pt" in said, said
    assert megabytes < 1000, megabytes


def test_more_memory_is_a_flag(tmp_path):
    buffer = io.BytesIO()
    torch.save({"w": torch.zeros(160 << 20)}, buffer)  # 640 MiB of zeros
    with tarfile.open(tmp_path / "zeros.nemo", "w:gz", compresslevel=1) as archive:
        info = tarfile.TarInfo("model_weights.ckpt")
        info.size = buffer.getbuffer().nbytes
        buffer.seek(0)
        archive.addfile(info, buffer)
    assert "over the limit" in redline("convert", tmp_path / "zeros.nemo", tmp_path / "o.safetensors", code=1).stderr
    redline("convert", tmp_path / "zeros.nemo", tmp_path / "o.safetensors", "--memory", "4GiB")
    assert load_file(tmp_path / "o.safetensors")["w"].numel() == 160 << 20
    assert "--memory takes a size" in redline("convert", tmp_path / "zeros.nemo", tmp_path / "o.safetensors", "--memory", "much", code=2).stderr
    assert "512 MiB or more" in redline("convert", tmp_path / "zeros.nemo", tmp_path / "o.safetensors", "--memory", "1MiB", code=2).stderr


def test_a_time_limit_ends_the_child_and_what_it_started(tmp_path, weights):
    fake = fake_python(tmp_path, f"""
held = subprocess.Popen(["sleep", "1000"])
open({str(tmp_path / "pid")!r}, "w").write(str(held.pid))
held.wait()""")
    begin = time.monotonic()
    said = redline("convert", weights, tmp_path / "o.safetensors", "--timeout", "3s", code=1, env=dict(os.environ, REDLINE_PYTHON=str(fake))).stderr
    assert "did not end within 3" in said and time.monotonic() - begin < 60
    held = pathlib.Path("/proc", (tmp_path / "pid").read_text())
    for _ in range(100):
        if not held.exists() or " Z " in (held / "stat").read_text():
            break
        time.sleep(0.1)
    else:
        pytest.fail("what the child started outlived it")


def test_a_file_of_the_user_is_not_replaced_by_a_models_config(tmp_path, weights):
    """A recipe may have the name of its weights."""
    with tarfile.open(tmp_path / "m.nemo", "w") as archive:
        archive.add(weights, "model_weights.ckpt")
        (tmp_path / "c").write_text("sample_rate: 16000\n")
        archive.add(tmp_path / "c", "model_config.yaml")
    (tmp_path / "o.yaml").write_text("my recipe")
    for _ in range(2):  # the second finds what the first wrote
        assert "o.2.yaml" in redline("convert", tmp_path / "m.nemo", tmp_path / "o.safetensors").stdout
    assert (tmp_path / "o.yaml").read_text() == "my recipe" and (tmp_path / "o.2.yaml").read_text() == "sample_rate: 16000\n"
    assert not (tmp_path / "o.3.yaml").exists()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may give files away")
def test_root_converts_what_belongs_to_another_user(tmp_path, weights):
    """A container's root and a folder of the host's user: in a user namespace the child would have lost root's right to it."""
    place = tmp_path / "theirs"
    place.mkdir(mode=0o700)
    weights.rename(place / "in.pt")
    for path in (place / "in.pt", place):
        os.chmod(path, 0o700)
        os.chown(path, 12345, 12345)
    redline("convert", place / "in.pt", place / "o.safetensors")
    redline("convert", place / "o.safetensors", place / "back.pt")
    assert torch.equal(torch.load(place / "back.pt")["w"], torch.arange(4.0))


def test_what_a_killed_conversion_left_goes_with_the_next(tmp_path, weights):
    fake = fake_python(tmp_path, f"""
import time
open({str(tmp_path / "begun")!r}, "w").close()
time.sleep(1000)""")
    place = tmp_path / "out"
    place.mkdir()
    killed = subprocess.Popen([REDLINE, "convert", weights, place / "o.safetensors"], env=dict(os.environ, REDLINE_PYTHON=str(fake)))
    while not (tmp_path / "begun").exists() and killed.poll() is None:
        time.sleep(0.01)
    killed.kill()
    killed.wait()
    assert os.listdir(place), "it was killed while it had scratch"
    redline("convert", weights, place / "o.safetensors")
    assert os.listdir(place) == ["o.safetensors"]
    assert "check the path" in redline("convert", weights, place / "nowhere" / "o.safetensors", code=7).stderr.lower()


def test_a_failing_child_is_seen_while_sigchld_is_ignored(tmp_path):
    (tmp_path / "bad.pt").write_bytes(b"no pickle")
    how = {"preexec_fn": lambda: signal.signal(signal.SIGCHLD, signal.SIG_IGN)}
    assert "weights_only" in redline("convert", tmp_path / "bad.pt", tmp_path / "o.safetensors", code=1, **how).stderr
    # A child that fails after it wrote a file looks like success to whoever does not see its exit code.
    fake = fake_python(tmp_path, """
import struct
text = json.dumps({"w": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}}).encode()
open(sys.argv[sys.argv.index("import") + 2], "wb").write(struct.pack("<Q", len(text)) + text + bytes(4))""")
    env = dict(os.environ, REDLINE_PYTHON=str(fake))
    assert "ended with code 1" in redline("convert", tmp_path / "bad.pt", tmp_path / "o.safetensors", code=1, env=env, **how).stderr
    assert not (tmp_path / "o.safetensors").exists()
