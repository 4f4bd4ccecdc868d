"""What a larger batch is worth: predicted from the noise of the reference's gradients, measured as what a sample is worth by whole schedules of half and of all samples, times
the speed of interleaved blocks.

time_to_loss.py REDLINE FOLDER [PAIRS]: prints the table.
"""
import json
import pathlib
import statistics
import subprocess
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import loss_jobs as jobs

ROOT = pathlib.Path(__file__).resolve().parents[2]
TIMES = (2, 4, 8)


def call(redline, folder, *words):
    done = subprocess.run([redline, "--json", *words], capture_output=True, text=True, cwd=folder)
    if done.returncode != 0:
        raise RuntimeError(f"{words[:3]} failed with {done.returncode}: {done.stderr[-2000:]}")
    return json.loads(done.stdout)


def certify(redline, folder, task, pairs, settings, seed):
    words = [word for setting in settings for word in ("--with", setting)]
    return call(redline, folder, "certify", f"{task}.yaml", f"seed={seed}", "--steps", str(jobs.STEPS[task]), "--pairs", str(pairs), "--every-pair",
                "--companions", "--speed", *words)["settings"]


def row_of(task, what, row, kept):
    time = row["certificate"]["time_to_loss"]
    measured = time["ratio"]
    return {"task": task, "batch": what, "kept": kept, "noise_scale": time["noise_scale"], "speed": row["speed"]["ratio"], "predicted_efficiency": time["predicted_efficiency"],
            "efficiency": (time["efficiency"] or {}).get("ratio"), "predicted": time["predicted_ratio"], "reached": time["reached"],
            "measured": measured["ratio"] if measured else None, "low": measured["interval"]["low"] if measured else None,
            "high": measured["interval"]["high"] if measured else None}


def tuned_batch(redline, folder, task, budget):
    """The tuner's own answer, where it keeps a batch: the batch's values, judged again from other seeds."""
    card = call(redline, folder, "tune", f"{task}.yaml", "--fresh", "--budget", budget, "--allow", "optimisation", "--card", f"{task}.card.json",
                "--out", f"{task}.tuned.yaml")["card"]
    values = {v["field"]: v["value"] for v in card["values"]}
    batch = {key: values[key] for key in ("model.train_ds.batch_size", "trainer.accumulate_grad_batches", "model.train_ds.micro_batch_size") if key in values}
    return " ".join(f"{key}={value}" for key, value in batch.items()) if "model.optim.base_batch_size" in values else ""


def campaign(redline, folder, pairs=5, budget="120s"):
    folder = pathlib.Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    redline = str(pathlib.Path(redline).resolve())
    found = []
    for task, recipe in jobs.RECIPES.items():
        (folder / f"{task}.yaml").write_text(recipe.format(root=ROOT))
        rows = certify(redline, folder, task, pairs, [jobs.larger_batch(task, times) for times in TIMES], jobs.SEED)
        found += [row_of(task, f"x {times}", row, False) for times, row in zip(TIMES, rows) if row["failure"] == ""]
        if batch := tuned_batch(redline, folder, task, budget):
            found.append(row_of(task, batch, certify(redline, folder, task, pairs, [batch], jobs.OTHER_SEED)[0], True))
    return found


def errors(found):
    return [100 * abs(one["predicted"] / one["measured"] - 1) for one in found if not one["kept"] and one["measured"]]


def table(found):
    lines = ["| task | batch | noise scale | speed | a sample is worth: predicted | measured | time to the loss: predicted | measured (95 %) | the tuner keeps it |",
             "|---|---|---|---|---|---|---|---|---|"]
    for one in found:
        shown = f"{one['measured']:.2f} ({one['low']:.2f} – {one['high']:.2f})" if one["measured"] else "not reached"
        lines.append(f"| {one['task']} | {one['batch']} | {one['noise_scale']:.3g} | {one['speed']:.2f} | {one['predicted_efficiency']:.2f} | "
                     f"{one['efficiency'] or float('nan'):.2f} | {one['predicted']:.2f} | {shown} | {'yes' if one['kept'] else ''} |")
    return lines


def figures(found):
    kept = [one for one in found if one["kept"]]
    return {"prediction_error_percent": statistics.median(errors(found) or [100.0]), "batches": len(errors(found)), "kept": len(kept),
            "kept_below_one": sum(not one["measured"] or one["measured"] < 1 for one in kept)}


if __name__ == "__main__":
    results = campaign(sys.argv[1], sys.argv[2], int(sys.argv[3]) if len(sys.argv) > 3 else 5, sys.argv[4] if len(sys.argv) > 4 else "120s")
    print("\n".join(table(results)))
    print(json.dumps(figures(results)))
