#!/usr/bin/env python3
"""scale_validation.py REDLINE [--part PART --folder DIR]: does `redline scale` foretell what happens? A model of about 20 MB of gradients is trained by two ranks of
one thread over loopback: the record that forecasts start from. Then, over links of limited rate between network namespaces: the same two ranks with real compute,
and 2, 4 and 8 ranks that replay the recorded steps with timed waits in place of compute; with delay through a relay. Needs root."""
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

from limited_network import LimitedLinks, Relay

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
JOB = f"""base: {ROOT}/recipes/sequence_vae.yaml
model:
  {{vocab_size: 2000, d_model: 256, d_ff: 1024, n_heads: 4, n_encoder_layers: 2, n_decoder_layers: 2, latent_dim: 32, max_sequence_length: 80,
   train_ds: {{synth: {{kind: sequences, num: 4000, seed: 1, vocab_size: 2000, median_length: 60, max_length: 80}}, batch_size: 32, num_workers: 1, pin_memory: false}},
   validation_ds: {{synth: {{kind: sequences, num: 8, seed: 2, vocab_size: 2000, median_length: 60, max_length: 80}}, batch_size: 8, num_workers: 1}}}}
trainer: {{precision: 32, intra_op_threads: 1, enable_progress_bar: false, max_epochs: -1, limit_val_batches: 0, log_every_n_steps: 10, strategy: {{peer_timeout: 60s}}}}
exp_manager: {{create_checkpoint_callback: false, create_tensorboard_logger: false}}
"""
MBIT = 1e6


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def timelines(run):
    """By step, a list over ranks."""
    found = {}
    for folder in (run, run / "ranks/1"):
        for line in (folder / "events.jsonl").read_text().splitlines()[1:]:
            event = json.loads(line)
            if event["kind"] == "ranks.timeline":
                found.setdefault(event["fields"]["step"], []).append(event["fields"])
    return found


def to_replay(run, path):
    steps = []
    for ranks in timelines(run).values():
        for one in ranks:
            buckets = [tuple(map(int, word.split(":"))) for word in one["buckets"].split()]
            steps.append({"own": one["own_ns"] * 1e-9, "backward": one["backward_ns"] * 1e-9, "exchanges": one["exchanges"],
                          "buckets": [[size, ready * 1e-9] for size, ready, _ in buckets]})
    path.write_text(json.dumps(steps))
    return steps


def step_seconds(run):
    """Means over the steps between two rows of metrics; the first, which has the start in it, left out."""
    return [json.loads(line)["value"] for line in (run / "metrics.jsonl").read_text().splitlines()[1:] if '"step_seconds"' in line][1:]


def forecast(redline, run, ranks, rate, delay):
    words = [redline, "--json", "scale", run, "--ranks", str(ranks), "--bandwidth", f"{rate / 1e6:g}Mbit", "--latency", f"{1e6 * delay:g}us"]
    answer = json.loads(subprocess.run(list(map(str, words)), check=True, capture_output=True, text=True).stdout)
    return answer, answer["points"][0]


class Replay:
    def __init__(self, machines, count, steps_file):
        port = free_port()
        self.ranks = [subprocess.Popen([*machines.words(r), sys.executable, str(HERE / "replay_rank.py"), str(steps_file)], stdin=subprocess.PIPE,
                                       stdout=subprocess.PIPE, text=True,
                                       env={**os.environ, "RANK": str(r), "WORLD_SIZE": str(count), "MASTER_ADDR": machines.address(0), "MASTER_PORT": str(port),
                                            "GLOO_SOCKET_IFNAME": machines.interface}) for r in range(count)]
        for process in self.ranks:
            assert process.stdout.readline().strip() == "ready"

    def measure(self, steps):
        for process in self.ranks:
            process.stdin.write(json.dumps({"steps": steps}) + "\n")
            process.stdin.flush()
        return max(json.loads(process.stdout.readline())["step_seconds"] for process in self.ranks)

    def close(self):
        for process in self.ranks:
            process.stdin.close()
        for process in self.ranks:
            if process.wait(60) != 0:
                raise RuntimeError("a replayed rank failed")


def replay_cases(kind, count, cases, steps_file, seconds):
    """[(rate, delay)] -> seconds of a step."""
    with kind(count) as machines:
        machines.limit(1e9 if kind is LimitedLinks else 1e11)
        replay = Replay(machines, count, steps_file)
        results = []
        for rate, delay in cases:
            machines.limit(rate, delay)
            guess = replay.measure(4)
            results.append(replay.measure(max(8, min(60, int(seconds / guess)))))
        replay.close()
        return results


def real_ranks(redline, job, folder, rate, steps):
    """Two ranks with their real compute, a machine each."""
    with LimitedLinks(2) as machines:
        machines.limit(rate)
        port, run = free_port(), folder / f"real_{int(rate / 1e6)}"
        ranks = [subprocess.Popen([*machines.words(r), str(redline), "train", str(job), f"--run-dir={run}", f"trainer.max_steps={steps}"], stderr=subprocess.PIPE, text=True,
                                  env={**os.environ, "RANK": str(r), "WORLD_SIZE": "2", "LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "1", "MASTER_ADDR": machines.address(0),
                                       "MASTER_PORT": str(port)}) for r in range(2)]
        for process in ranks:
            _, err = process.communicate(timeout=600)
            if process.returncode != 0:
                raise RuntimeError(err)
    return run


def exposed_share(run):
    exposed = sum(one["exposed_ns"] for ranks in timelines(run).values() for one in ranks)
    beside = sum(one["overlapped_ns"] for ranks in timelines(run).values() for one in ranks)
    return exposed / (exposed + beside), exposed, beside


def campaign(redline, folder, parts=("record", "real", "replay"), seconds=12, say=print):
    """Rows of forecasts against measurements; parts that were made before in the same folder are kept."""
    folder.mkdir(parents=True, exist_ok=True)
    job, record, rows_file = folder / "job.yaml", folder / "record", folder / "rows.json"
    job.write_text(JOB)
    rows = [] if "record" in parts or not rows_file.exists() else json.loads(rows_file.read_text())
    rows = [r for r in rows if r["part"] not in parts]

    def add(part, kind, ranks, rate, delay, took, extra=None):
        rows.append({"part": part, "kind": kind, "ranks": ranks, "mbit": rate / 1e6, "delay_us": 1e6 * delay, "step_seconds": took, **(extra or {})})
        rows_file.write_text(json.dumps(rows))
        say(json.dumps(rows[-1]))

    if "record" in parts:
        shutil.rmtree(record, ignore_errors=True)
        subprocess.run([redline, "launch", "-n", "2", "--", "train", job, f"--run-dir={record}", "trainer.max_steps=70"], check=True, capture_output=True)
    steps_file = folder / "steps.json"
    steps = to_replay(record, steps_file)
    answer, _ = forecast(redline, record, 2, 1e9, 0)
    say(json.dumps({"recorded_steps": len(steps), "own_seconds": statistics.mean(s["own"] for s in steps), "backward_seconds": statistics.mean(s["backward"] for s in steps),
                    "buckets": [b[0] for b in steps[0]["buckets"]], "basis": answer["basis"]}))
    if "real" in parts:
        for rate in (1000 * MBIT, 300 * MBIT, 100 * MBIT):
            run = real_ranks(redline, job, folder, rate, 30)
            share, exposed, beside = exposed_share(run)
            own = [one["own_ns"] for ranks in timelines(run).values() for one in ranks]
            add("real", "real compute", 2, rate, 0.0, statistics.mean(step_seconds(run)),
                {"exposed_share": share, "exposed_ms": exposed / len(own) / 1e6, "overlapped_ms": beside / len(own) / 1e6, "own_ms": statistics.mean(own) / 1e6})
            shutil.rmtree(run)
    if "replay" in parts:
        for count, rates in {2: [1000, 300, 100], 4: [1000, 300, 100], 8: [300, 100]}.items():
            cases = [(rate * MBIT, 0.0) for rate in rates]
            for (rate, delay), took in zip(cases, replay_cases(LimitedLinks, count, cases, steps_file, seconds)):
                add("replay", "replay, veth and tbf", count, rate, delay, took)
        for count, cases in {2: [(300 * MBIT, 2e-3), (300 * MBIT, 10e-3)], 4: [(300 * MBIT, 2e-3)], 8: [(100 * MBIT, 2e-3)]}.items():
            for (rate, delay), took in zip(cases, replay_cases(Relay, count, cases, steps_file, seconds)):
                add("replay", "replay, relay", count, rate, delay, took)
    return [{**row, **foretold(redline, record, row)} for row in rows]


def foretold(redline, record, row):
    """The forecast knows the record alone, so it may be asked when all is measured."""
    _, point = forecast(redline, record, row["ranks"], 1e6 * row["mbit"], 1e-6 * row["delay_us"])
    measured = point["batch"] / row["step_seconds"]
    return {"measured": measured, "forecast": point["samples_per_second"], "low": point["samples_per_second_interval"]["low"],
            "high": point["samples_per_second_interval"]["high"], "error": point["samples_per_second"] / measured - 1}


def figures(rows):
    outside = [r for r in rows if not r["low"] <= r["measured"] <= r["high"]]
    gigabit = [r for r in rows if r["part"] == "real" and r["mbit"] == 1000]
    return {"cases": len(rows), "largest_error_percent": 100 * max(abs(r["error"]) for r in rows), "median_error_percent": 100 * statistics.median(abs(r["error"]) for r in rows),
            "outside_interval_percent": 100 * len(outside) / len(rows), "exposed_percent_at_1_gbit": 100 * gigabit[0]["exposed_share"] if gigabit else -1.0}


def page(rows):
    table = ["| | ranks | Mbit/s | delay | measured samples/s | forecast | 90 % interval | error | inside |", "|---|---|---|---|---|---|---|---|---|"]
    for r in rows:
        table.append(f"| {r['kind']} | {r['ranks']} | {r['mbit']:g} | {r['delay_us'] / 1000:g} ms | {r['measured']:.1f} | {r['forecast']:.1f} | {r['low']:.1f} - {r['high']:.1f} "
                     f"| {100 * r['error']:+.1f} % | {'yes' if r['low'] <= r['measured'] <= r['high'] else '**no**'} |")
    within = sum(abs(r["error"]) <= 0.15 for r in rows)
    covered = sum(r["low"] <= r["measured"] <= r["high"] for r in rows)
    text = "\n".join(table) + f"\n\nWithin 15 %: {within} of {len(rows)}; inside the interval: {covered} of {len(rows)}.\n"
    for r in rows:
        if "exposed_share" in r:
            text += (f"\nReal compute at {r['mbit']:g} Mbit/s: {r['own_ms']:.0f} ms of own work a step, gradients {r['overlapped_ms']:.0f} ms beside backward and {r['exposed_ms']:.0f} ms "
                     f"after it: exposed share {100 * r['exposed_share']:.0f} %.\n")
    return text


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("redline", type=pathlib.Path)
    parser.add_argument("--seconds", type=float, default=12, help="of each replayed case")
    parser.add_argument("--part", choices=["record", "real", "replay", "all"], default="all")
    parser.add_argument("--folder", type=pathlib.Path, help="keep records and rows here, so that parts may be made one by one")
    arguments = parser.parse_args()
    folder = arguments.folder or pathlib.Path(tempfile.mkdtemp(prefix="scale_"))
    parts = ("record", "real", "replay") if arguments.part == "all" else (arguments.part,)
    rows = campaign(arguments.redline.resolve(), folder, parts, arguments.seconds, lambda text: print(text, flush=True))
    if rows:
        print(page(rows))
    if not arguments.folder:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
