#!/usr/bin/env python3
"""ledgers.py REDLINE FOLDER [speech] [vae] [convnext] [lss]: tunes the guides' starting points and keeps the ledgers in bench/results, for docs/guides.md."""
import datetime
import json
import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
JOBS = {
    "speech": """
base: {root}/recipes/nest_fast-conformer_small.yaml
name: ledger-speech
model:
  train_ds: {{batch_size: 2, num_workers: 0, use_bucketing: false, num_buckets: 1}}
  validation_ds: {{num_workers: 0}}
trainer: {{max_steps: 2000, val_check_interval: 400, log_every_n_steps: 10}}
""",
    "vae": """
base: {root}/recipes/sequence_vae.yaml
name: ledger-vae
model:
  train_ds: {{batch_size: 1, num_workers: 2, pin_memory: false}}
trainer: {{accumulate_grad_batches: 1, precision: 32-true}}
""",
    # The guide's batch of 1,024 takes six seconds a step on two cores; a sixteenth of it leaves time for turns.
    "convnext": """
base: {root}/recipes/convnext.yaml
name: ledger-convnext
model:
  train_ds: {{batch_size: 64, num_workers: 16, prefetch_factor: 8}}
  optim: {{base_batch_size: 64}}
trainer: {{log_every_n_steps: 10}}
""",
    # The guide's Swin-T takes ten seconds a step on two cores; the small model on the same pictures leaves time for turns.
    "lss": """
base: {root}/recipes/lss_small.yaml
name: ledger-lss
model:
  nuscenes: {{ncams: 5, resize_lim: [0.10527, 0.12273], bot_pct_lim: [0.0, 0.22], rot_lim: [-5.4, 5.4]}}
  train_ds: {{batch_size: 4, num_workers: 8, prefetch_factor: 2, synth: {{kind: nuscenes, num: 64, num_validation: 16, seed: 1}}}}
  validation_ds: {{batch_size: 4, synth: {{kind: nuscenes, num: 64, num_validation: 16, seed: 1}}}}
  optim: {{base_batch_size: 4}}
trainer: {{precision: 32-true, log_every_n_steps: 50}}
""",
}
STARTS = {"speech": "batch 2, no workers, no buckets, fp32", "vae": "batch 1, 2 workers, no accumulation, fp32",
          "lss": "the small model (recipes/lss_small.yaml) on pictures of 1600 x 900, batch 4, 8 workers, prefetch_factor 2, fp32",
          "convnext": "base_channels 64, 4 blocks a stage, batch 64 (a sixteenth of the guide's), 16 workers, prefetch_factor 8, fp32"}


def percent(ratio):
    return f"{100 * (ratio - 1):+.1f} %"


def estimate(e):
    return f"{percent(e['ratio'])} ({percent(e['interval']['low'])} to {percent(e['interval']['high'])})" if e else ""


def prediction(e):
    if not e["predicted"]:
        return ""
    interval = e.get("predicted_interval")
    return percent(e["predicted"]) + (f" ({percent(interval['low'])} to {percent(interval['high'])})" if interval else "")


def table(card):
    lines = ["| switch | claim of a guide | predicted | alone | in the best | interaction | verdict | kept |", "|---|---|---|---|---|---|---|---|"]
    for e in card["ledger"]["entries"]:
        verdict = e["verdict"] + (f": {e['reason']}" if e["reason"] else "")
        interaction = f"{e['interaction']:.2f}" if e["interaction"] else ""
        lines.append(f"| {e['field']} {e['from']} → {e['to']} | {e['claim']} | {prediction(e)} | "
                     f"{estimate(e['add_one_in'])} | {estimate(e['leave_one_out'])} | {interaction} | {verdict} | {'yes' if e['in_best'] else ''} |")
    return lines


def full_ledger(redline, folder, name, seconds=400):
    """The answer of a tuning that races every switch of a guide's starting point."""
    redline, folder = str(pathlib.Path(redline).resolve()), pathlib.Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{name}.yaml").write_text(JOBS[name].format(root=ROOT))
    done = subprocess.run([redline, "--json", "tune", f"{name}.yaml", "--fresh", "--full", "--budget", f"{seconds}s", "--allow", "numerics,order,optimisation",
                           "--card", f"{name}.card.json", "--out", f"{name}.tuned.yaml"], capture_output=True, text=True, cwd=folder)
    if done.returncode != 0:
        raise RuntimeError(done.stderr[-2000:])
    return json.loads(done.stdout)


def write_page(redline, name, answer):
    """The ledger in bench/results, from where docs/guides.md takes it."""
    machine = json.loads(subprocess.run([str(redline), "--json", "machine"], capture_output=True, text=True, check=True).stdout)
    card, date = answer["card"], datetime.date.today().isoformat()
    base = ROOT / "bench/results" / f"{date}_ledger_{name}"
    base.with_suffix(".json").write_text(json.dumps({"schema_version": 1, "start": STARTS[name], "card": card}, indent=1) + "\n")
    head = [f"# Ledger of the {name} recipe, {date}", "", f"Machine: {machine.get('cpu_model', '?')}, {machine.get('allowed_cpus', '?')} cores. "
            f"Start: {STARTS[name]}. Budget: {card['budget_seconds']:.0f} s. Reproduce: `bench/tuner/ledgers.py build/redline FOLDER {name}`.", "", answer["summary"], "",
            f"Certificate: {card['certificate']['kind']}. {card['certificate']['reason']}", ""]
    error = card["ledger"]["median_prediction_error_points"]
    tail = ["", f"Median error of the predictions: {error:.1f} percentage points." if error is not None else ""] + card["notes"]
    base.with_suffix(".md").write_text("\n".join(head + table(card) + tail) + "\n")


def kept_ledger(redline, folder, name, seconds):
    """full_ledger, its page written, kept in the folder: a campaign that was stopped goes on."""
    path = pathlib.Path(folder) / f"{name}.answer.json"
    if not path.exists():
        answer = full_ledger(redline, folder, name, seconds)
        write_page(redline, name, answer)
        path.write_text(json.dumps(answer))
    return json.loads(path.read_text())


def main(redline, folder, *names):
    redline = pathlib.Path(redline).resolve()
    for name in names or JOBS:
        answer = full_ledger(redline, folder, name)
        write_page(redline, name, answer)
        print(answer["summary"])


if __name__ == "__main__":
    main(*sys.argv[1:])
