"""What the tests of ranks share: tiny jobs, one thread a rank, and ways to start several processes and to look at them."""
import json
import os
import pathlib
import socket
import subprocess
import time

import numpy as np
from safetensors.numpy import load_file

ROOT = pathlib.Path(__file__).resolve().parents[2]
REDLINE = os.environ.get("REDLINE", str(ROOT / "build/redline"))
SLOW = os.environ.get("REDLINE_SLOW") == "1"
TRAINER = """trainer:
  precision: 32
  intra_op_threads: 1
  enable_progress_bar: false
  log_every_n_steps: 1
  max_steps: 20
  max_epochs: -1
  val_check_interval: 1.0
  limit_val_batches: 1.0
  strategy: {peer_timeout: 3s}
"""
JOBS = {
    "vae": f"""base: {ROOT}/recipes/sequence_vae.yaml
model:
  {{vocab_size: 50, d_model: 32, d_ff: 64, n_heads: 4, n_encoder_layers: 2, n_decoder_layers: 2, latent_dim: 8, max_sequence_length: 40,
   train_ds: {{synth: {{kind: sequences, num: 75, seed: 1, vocab_size: 50, median_length: 15, max_length: 40}}, batch_size: 6, num_workers: 1, pin_memory: false}},
   validation_ds: {{synth: {{kind: sequences, num: 53, seed: 2, vocab_size: 50, median_length: 15, max_length: 40}}, batch_size: 8, num_workers: 1}}}}
""",
    "speech": f"""base: {ROOT}/recipes/nest_fast-conformer_small.yaml
model:
  train_ds: {{synth: {{kind: speech, num: 40, seed: 1, median_seconds: 1.0, min_seconds: 0.8, max_seconds: 2.0}}, batch_size: 6, num_workers: 1, max_duration: 2.0, num_buckets: 2}}
  validation_ds: {{synth: {{kind: speech, num: 13, seed: 2, median_seconds: 1.0, min_seconds: 0.8, max_seconds: 2.0}}, batch_size: 4, max_duration: 2.0}}
  longest_clip: 2.0
  num_classes: 64
  encoder: {{n_layers: 2, d_model: 32, n_heads: 4}}
""",
    "convnext": f"""base: {ROOT}/recipes/convnext_small.yaml
model:
  dims: [16, 24, 32, 48]
  image_size: 32
  train_ds: {{synth: {{kind: images, num: 60, num_validation: -1, seed: 1, num_classes: 6, width: 32, height: 32}}, batch_size: 7, num_workers: 1}}
  validation_ds: {{synth: {{kind: images, num: 25, num_validation: -1, seed: 2, num_classes: 6, width: 32, height: 32}}, batch_size: 8}}
  monitor: {{separation_on_validation: true}}
""",
    "lss": f"""base: {ROOT}/recipes/lss_swin_nuscenes.yaml
model:
  grid: {{xbound: [-48.0, 48.0, 6.0], ybound: [-48.0, 48.0, 6.0], zbound: [-10.0, 10.0, 20.0], dbound: [4.0, 44.0, 8.0]}}
  image_size: [64, 96]
  cam_channels: 8
  neck_channels: 16
  backbone: {{embed_dim: 12, depths: [1, 1, 1, 1], num_heads: [2, 2, 2, 2]}}
  nuscenes: {{ncams: 2}}
  train_ds: {{synth: {{kind: nuscenes, num: 12, num_validation: 5, seed: 1}}, batch_size: 3, num_workers: 1, prefetch_factor: 2, pin_memory: false}}
  validation_ds: {{synth: {{kind: nuscenes, num: 12, num_validation: 5, seed: 1}}, batch_size: 3, num_workers: 1}}
  optim: {{name: sgd, lr: 1.0e-3, weight_decay: 0, scale_lr: none}}
""",
}


def make_home(folder):
    for name, text in JOBS.items():
        (folder / f"{name}.yaml").write_text(text + TRAINER)
    return folder


def start(home, *words, env=None):
    clean = {k: v for k, v in os.environ.items() if k not in ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")}
    return subprocess.Popen([REDLINE, *map(str, words)], cwd=home, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env={**clean, **(env or {})})


def run(home, *words, code=0, env=None):
    process = start(home, *words, env=env)
    out, err = process.communicate(timeout=120)
    assert process.returncode == code, (words, process.returncode, out, err)
    return err


def launch(home, count, *words, **kwargs):
    return run(home, "launch", "-n", count, "--", "train", *words, **kwargs)


def values(folder):
    found = {}
    for line in (folder / "metrics.jsonl").read_text().splitlines():
        point = json.loads(line)
        for name, value in point.get("metrics", {point.get("name"): point.get("value")} if "name" in point else point).items():
            if name in ("loss", "grad_norm") or name.startswith("val_"):
                found[name, point["step"]] = value
    return found


def newest(folder):
    return sorted((folder / "checkpoints").glob("step-*"))[-1]


def weights(folder):
    return load_file(newest(folder) / "model.safetensors")


def bit_equal(a, b):
    x, y = weights(a), weights(b)
    return set(x) == set(y) and all(np.array_equal(x[k], y[k]) for k in x)


def apart(a, b, names):
    x, y = values(a), values(b)
    assert set(x) == set(y) and any(k[0] == names[0] for k in x)
    return max(abs(x[k] - y[k]) / max(1e-9, abs(x[k])) for k in x if k[0] in names)


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def ranks_by_hand(home, per_rank, port=None, world=2):
    """Ranks as torchrun starts them, each with words and variables of its own."""
    port = port or free_port()
    return [start(home, *words, env={"RANK": str(r), "WORLD_SIZE": str(world), "LOCAL_RANK": str(r), "LOCAL_WORLD_SIZE": str(world),
                                     "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), **env})
            for r, (words, env) in enumerate(per_rank)]


def children(pid):
    found = []
    for stat in pathlib.Path("/proc").glob("[0-9]*/stat"):
        try:
            text = stat.read_text()
        except OSError:
            continue
        if int(text.rsplit(")", 1)[1].split()[1]) == pid:
            found.append(int(text.split()[0]))
    return sorted(found)


def wait_for(condition, seconds=60):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if result := condition():
            return result
        time.sleep(0.02)
    raise AssertionError("did not come true")


def running(pid):
    try:
        return "Z" not in pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
    except OSError:
        return False


def last_step(folder):
    try:
        return max([k[1] for k in values(folder)], default=0)
    except (OSError, ValueError):
        return 0


def finish(processes, codes):
    texts = [p.communicate(timeout=90)[1] for p in processes]
    assert [p.returncode for p in processes] == codes, texts
    return texts


def listening_in(words, pid):
    """Addresses that a process listens at, as its own network namespace shows them; `words` run a command there."""
    sockets = set()
    for link in pathlib.Path(f"/proc/{pid}/fd").glob("*"):
        try:
            target = os.readlink(link)
        except OSError:
            continue
        if target.startswith("socket:["):
            sockets.add(target[8:-1])
    found = []
    for table in ("tcp", "tcp6"):
        text = subprocess.run([*words, "cat", f"/proc/net/{table}"], check=True, capture_output=True, text=True).stdout
        for line in text.splitlines()[1:]:
            columns = line.split()
            if columns[3] == "0A" and columns[9] in sockets:
                number = bytes.fromhex(columns[1].split(":")[0][-8:])[::-1]
                found.append(".".join(map(str, number)))
    return found
