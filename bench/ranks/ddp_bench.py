#!/usr/bin/env python3
"""ddp_bench.py REDLINE [--rounds 3] [--batch 16,64]: two ranks of one thread, redline against PyTorch's DDP (ddp_peer.py), and one process of one thread of each;
and redline's one rank under a launcher against plain. Each round has all in turns, there and back. Both have the pictures in memory; redline
still makes batches of them."""
import argparse
import json
import os
import pathlib
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
  train_ds: {{synth: {{kind: images, num: 512, seed: 1, num_classes: 6, width: 64, height: 64}}, image_flip: 0.0, image_crop: none, cache: memory, batch_size: {batch}, num_workers: 1}}
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


def peer_rate(batch, world, steps, warmup, python=sys.executable):
    port = free_port()
    ranks = [subprocess.Popen([str(python), HERE / "ddp_peer.py", str(batch), str(steps), str(warmup)], stdout=subprocess.PIPE, text=True,
                              env={**os.environ, "OMP_NUM_THREADS": "1", "RANK": str(r), "WORLD_SIZE": str(world), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port),
                                   "GLOO_SOCKET_IFNAME": "lo"}) for r in range(world)]
    outs = [p.communicate()[0] for p in ranks]
    assert all(p.returncode == 0 for p in ranks)
    return json.loads(outs[0])["samples_per_second"]


def steps_for(batch, seconds, python=sys.executable):
    """So that one process takes about that long."""
    return max(10, int(seconds * peer_rate(batch, 1, 4, 2, python) / batch / 5) * 5)


def one_round(redline, folder, batch, steps, backwards, python=sys.executable):
    """Each way twice, at places that mirror each other."""
    ways = {"redline_one": lambda: redline_rate(redline, folder, batch, "plain", steps, 10), "pytorch_one": lambda: peer_rate(batch, 1, steps, 5, python),
            "redline_two": lambda: redline_rate(redline, folder, batch, "two", steps, 10), "pytorch_two": lambda: peer_rate(batch, 2, steps, 5, python),
            "redline_launch_one": lambda: redline_rate(redline, folder, batch, "one", steps, 10)}
    order = list(reversed(ways)) if backwards else list(ways)
    rates = {name: 0.0 for name in ways}
    for name in order + order[::-1]:
        rates[name] += ways[name]() / 2
    one, two = rates["redline_one"] / rates["pytorch_one"], rates["redline_two"] / rates["pytorch_two"]
    return {**rates, "one_process_ratio": one, "two_ranks_ratio": two, "beyond": two / one, "short_of_1.1_beyond": 1.1 / (two / one),
            "redline_two_over_one": rates["redline_two"] / rates["redline_one"], "pytorch_two_over_one": rates["pytorch_two"] / rates["pytorch_one"],
            "launcher_overhead_percent": 100 * (rates["redline_one"] / rates["redline_launch_one"] - 1)}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("redline", type=pathlib.Path)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--batch", default="16,64")
    parser.add_argument("--seconds", type=float, default=4)
    arguments = parser.parse_args()
    folder = pathlib.Path(tempfile.mkdtemp(prefix="ddp_bench_"))
    for batch in map(int, arguments.batch.split(",")):
        steps = steps_for(batch, arguments.seconds)
        for number in range(arguments.rounds):
            print(json.dumps({"batch": batch, **{k: round(v, 4) for k, v in one_round(arguments.redline.resolve(), folder, batch, steps, number % 2 == 1).items()}}), flush=True)
    shutil.rmtree(folder)


if __name__ == "__main__":
    main()
