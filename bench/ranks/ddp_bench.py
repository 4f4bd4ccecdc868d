#!/usr/bin/env python3
"""ddp_bench.py REDLINE [--rounds 5] [--batch 16,64]: two ranks of one thread, redline against PyTorch's DDP (ddp_peer.py), and one process of one thread of each;
and redline's one rank under a launcher against plain. All in turns, A B B A; medians and the spread of the ratios. redline reads and decodes its pictures, the
peer has them in memory."""
import argparse
import json
import os
import pathlib
import random
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def job(folder, batch):
    path = folder / f"job{batch}.yaml"
    path.write_text(f"""base: {ROOT}/recipes/convnext_small.yaml
model:
  dims: [64, 128, 256, 384]
  depths: [1, 1, 2, 1]
  train_ds: {{synth: {{kind: images, num: 512, seed: 1, num_classes: 6, width: 64, height: 64}}, image_flip: 0.0, batch_size: {batch}, num_workers: 1}}
trainer: {{precision: 32, intra_op_threads: 1, enable_progress_bar: false, max_epochs: -1, limit_val_batches: 0, log_every_n_steps: 5}}
exp_manager: {{create_checkpoint_callback: false, create_tensorboard_logger: false}}
""")
    return path


def redline_rate(redline, folder, batch, how, steps, warmup):
    run = folder / "run"
    shutil.rmtree(run, ignore_errors=True)
    words = ["train", job(folder, batch), f"--run-dir={run}", f"trainer.max_steps={steps + warmup}"]
    start = {"plain": [redline], "one": [redline, "launch", "-n", "1", "--"], "two": [redline, "launch", "-n", "2", "--"]}[how]
    subprocess.run([*map(str, start), *map(str, words)], check=True, capture_output=True)
    seconds = [p["value"] for p in map(json.loads, (run / "metrics.jsonl").read_text().splitlines()[1:]) if p["name"] == "step_seconds" and p["step"] > warmup]
    return batch / statistics.mean(seconds)


def peer_rate(batch, world, steps, warmup):
    port = free_port()
    ranks = [subprocess.Popen([sys.executable, HERE / "ddp_peer.py", str(batch), str(steps), str(warmup)], stdout=subprocess.PIPE, text=True,
                              env={**os.environ, "OMP_NUM_THREADS": "1", "RANK": str(r), "WORLD_SIZE": str(world), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port),
                                   "GLOO_SOCKET_IFNAME": "lo"}) for r in range(world)]
    outs = [p.communicate()[0] for p in ranks]
    assert all(p.returncode == 0 for p in ranks)
    return json.loads(outs[0])["samples_per_second"]


def middle(values):
    """Median with a 95 % bootstrap interval."""
    chance = random.Random(1)
    draws = sorted(statistics.median(chance.choices(values, k=len(values))) for _ in range(2000))
    return f"{statistics.median(values):.3f} ({draws[50]:.3f}-{draws[1949]:.3f})"


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("redline", type=pathlib.Path)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--batch", default="16,64")
    parser.add_argument("--seconds", type=float, default=4)
    parser.add_argument("--only")
    arguments = parser.parse_args()
    folder = pathlib.Path(tempfile.mkdtemp(prefix="ddp_bench_"))
    redline = arguments.redline.resolve()
    for batch in map(int, arguments.batch.split(",")):
        probe = peer_rate(batch, 1, 4, 2)
        steps = max(10, int(arguments.seconds * probe / batch / 5) * 5)
        variants = {"redline x1": lambda: redline_rate(redline, folder, batch, "plain", steps, 10), "peer x1": lambda: peer_rate(batch, 1, steps, 5),
                    "redline x2": lambda: redline_rate(redline, folder, batch, "two", steps, 10), "peer x2": lambda: peer_rate(batch, 2, steps, 5),
                    "redline launch -n 1": lambda: redline_rate(redline, folder, batch, "one", steps, 10)}
        if arguments.only:
            variants = {k: v for k, v in variants.items() if any(word in k for word in arguments.only.split(","))}
        rates = {name: [] for name in variants}
        for number in range(arguments.rounds):
            order = list(variants) if number % 2 == 0 else list(reversed(variants))
            for name in order:
                rates[name].append(variants[name]())
        print(f"batch {batch} of all ranks, {steps} steps, {arguments.rounds} rounds")
        for name, values in rates.items():
            print(f"  {name}: {middle(values)} samples/s")

        def ratio(a, b):
            return [x / y for x, y in zip(rates[a], rates[b])]
        if not arguments.only:
            one, two = ratio("redline x1", "peer x1"), ratio("redline x2", "peer x2")
            print(f"  one process, redline / PyTorch: {middle(one)}\n  two ranks, redline / PyTorch DDP: {middle(two)}")
            print(f"  the second over the first: {middle([b / a for a, b in zip(one, two)])}")
            print(f"  two ranks over one process: redline {middle(ratio('redline x2', 'redline x1'))}, PyTorch {middle(ratio('peer x2', 'peer x1'))}")
            print(f"  one rank under a launcher against plain: {middle(ratio('redline launch -n 1', 'redline x1'))}", flush=True)
    shutil.rmtree(folder)


if __name__ == "__main__":
    main()
