"""Several ranks as processes: equal to one process, started by every launcher, and safe when a rank is lost. Tiny jobs, one thread a rank."""
import json
import os
import pathlib
import random
import re
import signal
import socket
import subprocess
import sys
import time

import numpy as np
import pytest
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
""",
}


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    folder = tmp_path_factory.mktemp("ranks")
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
            if name in ("loss", "grad_norm", "val_loss", "val_perplexity", "val_active_units", "val_accuracy"):
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


@pytest.mark.parametrize("job,words", [
    ("vae", []),
    ("vae", ["trainer.accumulate_grad_batches=3", "model.train_ds.batch_size=2"]),
    ("vae", ["trainer.strategy.static_graph=true", "trainer.accumulate_grad_batches=2"]),
    ("speech", ["trainer.sync_batchnorm=true"]),
    ("speech", ["trainer.sync_batchnorm=true", "trainer.accumulate_grad_batches=2", "model.train_ds.batch_size=3"]),
    ("convnext", ["trainer.strategy.bucket_cap_mb=0.02", "trainer.strategy.gradient_as_bucket_view=false"]),
    ("convnext", ["model.train_ds.batch_size=3", "model.train_ds.micro_batch_size=1", "trainer.strategy.find_unused_parameters=true"]),
    ("convnext", ["trainer.sync_batchnorm=true", "model.arch=baseline", "model.optim.name=sgd", "model.optim.lr=0.01"]),
], ids=lambda x: x if isinstance(x, str) else "+".join(w.split(".")[-1] for w in x) or "plain")
def test_two_ranks_are_one_process(home, tmp_path, job, words):
    run(home, "train", f"{job}.yaml", f"--run-dir={tmp_path}/one", *words)
    launch(home, 2, f"{job}.yaml", f"--run-dir={tmp_path}/two", *words)
    one, two = values(tmp_path / "one"), values(tmp_path / "two")
    assert abs(one["grad_norm", 1] - two["grad_norm", 1]) / one["grad_norm", 1] < 1e-5
    assert apart(tmp_path / "one", tmp_path / "two", ["loss", "val_loss", "val_perplexity"]) < 1e-4
    assert {k: v for k, v in one.items() if k[0] in ("val_active_units", "val_accuracy")} == {k: v for k, v in two.items() if k[0] in ("val_active_units", "val_accuracy")}
    assert (tmp_path / "two/ranks/1/steps.bin").exists() and not (tmp_path / "two/ranks/1/checkpoints").exists()


def test_a_wrong_seed_is_seen(home, tmp_path):
    """The control of the above."""
    run(home, "train", "vae.yaml", f"--run-dir={tmp_path}/one", "seed=5")
    launch(home, 2, "vae.yaml", f"--run-dir={tmp_path}/two")
    assert apart(tmp_path / "one", tmp_path / "two", ["loss"]) > 1e-3


def test_devices_start_ranks_by_themselves_and_the_guides_block_is_taken(home, tmp_path):
    (home / "guide.yaml").write_text("base: vae.yaml\ntrainer:\n  devices: 2\n  sync_batchnorm: true\n  strategy:\n"
                                     "    _target_: lightning.pytorch.strategies.DDPStrategy\n    gradient_as_bucket_view: true\n")
    err = run(home, "train", "guide.yaml", f"--run-dir={tmp_path}/two")
    assert "starting 2 ranks" in err and "2 ranks share each batch" in err and "one rank" not in err
    launch(home, 2, "vae.yaml", f"--run-dir={tmp_path}/launched")
    assert bit_equal(tmp_path / "two", tmp_path / "launched")
    err = run(home, "train", "vae.yaml", f"--run-dir={tmp_path}/all", "trainer.devices=-1", "trainer.strategy=ddp", "trainer.max_steps=2")
    assert "one process on the CPU" in err


def test_rounding_on_the_wire_trains_alike(home, tmp_path):
    run(home, "train", "vae.yaml", f"--run-dir={tmp_path}/one")
    launch(home, 2, "vae.yaml", f"--run-dir={tmp_path}/two", "trainer.strategy.compression=bf16")
    assert 1e-9 < apart(tmp_path / "one", tmp_path / "two", ["loss"]) < 1e-2


def test_torchrun_starts_the_program(home, tmp_path):
    launch(home, 2, "vae.yaml", f"--run-dir={tmp_path}/launched")
    torchrun = pathlib.Path(sys.executable).parent / "torchrun"
    result = subprocess.run([torchrun, "--no-python", "--nproc-per-node", "2", "--master-port", str(free_port()), REDLINE, "train", "vae.yaml",
                             f"--run-dir={tmp_path}/two"], cwd=home, capture_output=True, text=True, timeout=180)
    assert result.returncode == 0, result.stderr
    assert bit_equal(tmp_path / "two", tmp_path / "launched")


def test_another_number_of_ranks_continues_the_same_order(home, tmp_path):
    words = ["vae.yaml", "trainer.max_steps=60"]
    run(home, "train", *words, f"--run-dir={tmp_path}/one")
    said, at = "", 0
    for count in (2, 3):
        process = start(home, "launch", "-n", count, "--", "train", *words, f"--run-dir={tmp_path}/two")
        wait_for(lambda: last_step(tmp_path / "two") > at + 5)
        process.send_signal(signal.SIGTERM)
        said += process.communicate(timeout=60)[1]
        assert process.returncode == 75, said
        assert at < (at := last_step(tmp_path / "two")) < 60
    said += run(home, "train", *words, f"--run-dir={tmp_path}/two")
    assert said.count("Resuming") == 2 and "other settings" not in said and "another data plan" not in said
    assert apart(tmp_path / "one", tmp_path / "two", ["loss"]) < 1e-4


def listening(pids):
    """Addresses that these processes listen at."""
    sockets = set()
    for pid in pids:
        for link in pathlib.Path(f"/proc/{pid}/fd").glob("*"):
            try:
                if match := re.match(r"socket:\[(\d+)\]", os.readlink(link)):
                    sockets.add(match[1])
            except OSError:
                pass
    found = []
    for table in ("tcp", "tcp6"):
        for line in pathlib.Path(f"/proc/net/{table}").read_text().splitlines()[1:]:
            words = line.split()
            if words[3] == "0A" and words[9] in sockets:
                found.append(words[1])
    return found


def test_nothing_listens_outside_loopback(home, tmp_path):
    """Started by `redline launch` (the launcher holds the store) and by hand (rank 0 does)."""
    first = start(home, "launch", "-n", 2, "--", "train", "vae.yaml", f"--run-dir={tmp_path}/a", "trainer.max_steps=100000")
    by_hand = ranks_by_hand(home, [(["train", "vae.yaml", f"--run-dir={tmp_path}/b", "trainer.max_steps=100000"], {})] * 2)
    try:
        wait_for(lambda: last_step(tmp_path / "a") > 2 and last_step(tmp_path / "b") > 2)
        for pids in ([first.pid, *children(first.pid)], [p.pid for p in by_hand]):
            addresses = listening(pids)
            assert addresses, "the store and the ranks listen somewhere"
            assert all(a.startswith("0100007F:") or a.startswith("0000000000000000FFFF00000100007F:") for a in addresses), addresses
    finally:
        for process in (first, *by_hand):
            process.send_signal(signal.SIGTERM)
        for process in (first, *by_hand):
            assert process.wait(60) == 75


def test_a_signal_to_one_rank_stops_all_after_the_same_step(home, tmp_path):
    launch(home, 2, "vae.yaml", f"--run-dir={tmp_path}/whole", "trainer.max_steps=60")
    process = start(home, "launch", "-n", 2, "--", "train", "vae.yaml", f"--run-dir={tmp_path}/run", "trainer.max_steps=60")
    wait_for(lambda: last_step(tmp_path / "run") > 3)
    os.kill(children(process.pid)[-1], signal.SIGTERM)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 75, err
    assert 3 < last_step(tmp_path / "run") < 60
    launch(home, 2, "vae.yaml", f"--run-dir={tmp_path}/run", "trainer.max_steps=60")
    assert bit_equal(tmp_path / "run", tmp_path / "whole")


@pytest.mark.parametrize("how", ["SIGKILL", "SIGSTOP"])
def test_a_lost_rank_is_named_and_nobody_waits_forever(home, tmp_path, how):
    seed = int(os.environ.get("REDLINE_SEED", "1"))
    chance = random.Random(f"{seed}{how}")
    words = ["vae.yaml", "trainer.max_steps=60", "exp_manager.checkpoint_callback_params.every_n_train_steps=7", "trainer.val_check_interval=0.5"]
    launch(home, 2, *words, f"--run-dir={tmp_path}/whole")
    run_dir = tmp_path / "run"
    lost, before = 0, 0
    for _ in range(12 if SLOW else 3):
        process = start(home, "launch", "-n", 2, "--", "train", *words, f"--run-dir={run_dir}")
        try:
            wait_for(lambda: last_step(run_dir) > before + 2 or process.poll() is not None)
            if process.poll() is not None:
                break
            time.sleep(chance.random() * 0.15)
            pids = children(process.pid)
            if len(pids) < 2:
                break
            rank = chance.randrange(2)
            began = time.monotonic()
            os.kill(pids[rank], getattr(signal, how))
            out, err = process.communicate(timeout=60)
            if process.returncode == 0:
                break  # it had ended already
            assert process.returncode == 8, (process.returncode, err)
            assert f"Rank {rank} " in err, err
            assert re.search(r"last seen in \w+ of step \d+", err), err
            assert time.monotonic() - began < 3 + 8
            assert not any(running(pid) for pid in pids), "an orphan"
            lost += 1
            before = last_step(run_dir)
        finally:
            if process.poll() is None:
                process.kill()
    assert lost >= 2
    launch(home, 2, *words, f"--run-dir={run_dir}")
    assert bit_equal(run_dir, tmp_path / "whole"), "as if nothing had been"


def test_a_killed_launcher_leaves_no_orphan(home, tmp_path):
    process = start(home, "launch", "-n", 2, "--", "train", "vae.yaml", f"--run-dir={tmp_path}/run", "trainer.max_steps=100000")
    wait_for(lambda: last_step(tmp_path / "run") > 2)
    pids = children(process.pid)
    process.kill()
    process.communicate()
    wait_for(lambda: not any(running(pid) for pid in pids), 15)


def finish(processes, codes):
    texts = [p.communicate(timeout=90)[1] for p in processes]
    assert [p.returncode for p in processes] == codes, texts
    return texts


def test_a_bad_number_on_one_rank_is_handled_by_all(home, tmp_path):
    job = ["train", "vae.yaml", "trainer.max_steps=8"]
    run(home, *job, f"--run-dir={tmp_path}/one")
    words = [*job, f"--run-dir={tmp_path}/two"]
    finish(ranks_by_hand(home, [(words, {}), (words, {"REDLINE_FAULTS": "nan.loss@3"})]), [0, 0])
    assert apart(tmp_path / "one", tmp_path / "two", ["loss"]) < 1e-5
    events = (tmp_path / "two/events.jsonl").read_text()
    assert events.count('"guard.non_finite"') == 1
    assert (tmp_path / "two/ranks/1/events.jsonl").read_text().count('"guard.non_finite"') == 1


def test_damaged_weights_on_one_rank_send_all_back(home, tmp_path):
    job = ["train", "vae.yaml", "trainer.max_steps=8"]
    run(home, *job, f"--run-dir={tmp_path}/one")
    words = [*job, f"--run-dir={tmp_path}/two"]
    finish(ranks_by_hand(home, [(words, {}), (words, {"REDLINE_FAULTS": "nan.optimizer@3"})]), [0, 0])
    assert apart(tmp_path / "one", tmp_path / "two", ["loss"]) < 1e-4
    assert '"guard.replayed"' in (tmp_path / "two/events.jsonl").read_text()


def test_too_little_memory_on_one_rank_cuts_pieces_on_all(home, tmp_path):
    words = ["train", "vae.yaml", "trainer.max_steps=6"]
    run(home, *words, f"--run-dir={tmp_path}/one")
    words.append(f"--run-dir={tmp_path}/two")
    finish(ranks_by_hand(home, [(words, {}), ([*words, "trainer.memory_limit=1400KiB"], {})]), [0, 0])
    for record in ("two", "two/ranks/1"):
        assert '"guard.out_of_memory"' in (tmp_path / record / "events.jsonl").read_text()
    assert apart(tmp_path / "one", tmp_path / "two", ["loss"]) < 1e-4


def test_too_little_memory_for_a_synchronised_piece_ends_with_a_sentence(home, tmp_path):
    """The rank cannot know yet which sums the others wait for."""
    words = ["train", "speech.yaml", "trainer.max_steps=6", "trainer.sync_batchnorm=true", f"--run-dir={tmp_path}/two"]
    texts = finish(ranks_by_hand(home, [(words, {}), ([*words, "trainer.memory_limit=4MiB"], {})]), [8, 6])
    assert "ran out of memory in its first piece" in texts[1] and "Rank 1 ended" in texts[0], texts


def test_mixed_up_jobs_are_caught(home, tmp_path):
    port = free_port()
    a, b = ranks_by_hand(home, [(["train", "vae.yaml", f"--run-dir={tmp_path}/a"], {}), (["train", "convnext.yaml", f"--run-dir={tmp_path}/b"], {})], port)
    try:
        _, err = b.communicate(timeout=60)
        assert b.returncode == 2 and "Rank 1 belongs to another job" in err, err
        assert a.poll() is None, "a stranger does not end the job that it came to"
    finally:
        for process in (a, b):
            process.kill()
            process.communicate()


def test_variables_that_contradict_each_other(home, tmp_path):
    for env, sentence in (({"WORLD_SIZE": "2"}, "RANK is not"), ({"RANK": "2", "WORLD_SIZE": "2"}, "only 2 ranks"),
                          ({"RANK": "0", "WORLD_SIZE": "2", "LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "2"}, "MASTER_PORT")):
        assert sentence in run(home, "train", "vae.yaml", f"--run-dir={tmp_path}/x", code=2, env=env)
    err = run(home, "train", "vae.yaml", f"--run-dir={tmp_path}/x", "trainer.num_nodes=2", code=2)
    assert "torchrun" in err
    assert not (tmp_path / "x").exists()
