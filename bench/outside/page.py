"""The page of the outside bench: what was done to the job against what the doctor said."""
import collections
import datetime
import json
import statistics
import subprocess
import sys

from outside.faults import FAULTS

LEAST_GAIN = 0.05
STRANGERS = 0.08


def right(name, said):
    return any(said["verdict"] == verdict and detail in (None, said["detail"]) for verdict, detail in FAULTS[name].right)


def false_alarm(said):
    """A healthy job has no limit that is worth naming."""
    return said["verdict"] not in ("compute-bound", "balanced")


def judged(runs):
    """Each fault with what removing it gains, by the healthy runs around it or by its own twin."""
    by_key = {tuple(one["key"]): one for one in runs}
    rows = []
    for (repeat, task, name, place), one in by_key.items():
        if name == "healthy" or name.startswith("without "):
            continue
        if FAULTS[name].removed_words:
            twins = [by_key.get((repeat, task, f"without {name}", place))]
        else:
            twins = [by_key.get((repeat, task, "healthy", at)) for at in (place, place + 1)]
        rates = [twin["rate"] for twin in twins if twin and twin["strangers"] < STRANGERS]
        if not rates or one["rate"] <= 0:
            continue
        gain = statistics.mean(rates) / one["rate"] - 1
        said = one["answer"]
        rows.append({"repeat": repeat, "task": task, "fault": name, "gain": gain, "counts": gain >= LEAST_GAIN and one["strangers"] < STRANGERS, "right": right(name, said),
                     "said": f"{said['verdict']} ({said['detail']})" if said["detail"] else said["verdict"], "predicted": said["gain"], "sentence": said["sentence"]})
    return rows


def summary(runs):
    rows = judged(runs)
    counted = [row for row in rows if row["counts"]]
    controls = [one for one in runs if one["key"][2] == "healthy" and one["strangers"] < STRANGERS]
    alarms = [one for one in controls if false_alarm(one["answer"])]
    errors = [max(0.0, abs(row["predicted"] - row["gain"]) - max(0.03, 0.25 * row["gain"])) for row in counted if row["right"]]
    kinds = collections.defaultdict(list)
    for row in counted:
        kinds[row["fault"]].append(row["right"])
    return {"rows": rows, "counted": len(counted), "right": sum(row["right"] for row in counted), "controls": len(controls), "false_alarms": len(alarms),
            "alarms": [[one["key"][1], one["answer"]["verdict"], one["answer"]["detail"]] for one in alarms],
            "kinds": {name: [sum(found), len(found)] for name, found in kinds.items()},
            "gains_within": sum(error == 0 for error in errors), "gains": len(errors), "median_excess": statistics.median(errors) if errors else 0.0}


def share(part, whole):
    return f"{part} of {whole}" + (f" ({100 * part / whole:.0f} %)" if whole else "")


def markdown(found, facts, left_out, note=""):
    rows = found["rows"]
    said = sorted({row["said"] for row in rows if row["counts"]})
    head = f"# doctor_outside, {datetime.date.today().isoformat()}\n\nMachine: {facts.get('cpu_model', '?')}, {facts.get('allowed_cpus', '?')} cores. Reproduce: `bench/doctor_outside.py build --repeats N`, then `--page`.\n\n"
    head += ("Faults made by means that know nothing of redline's phases, on small jobs of four tasks; `redline doctor RUN` saw the record of one run of a few seconds and no healthy twin. "
             "A fault counts where the job without it, measured beside it, is at least 5 % faster.\n\n")
    if note:
        head += note + "\n\n"
    worst = min((a / b for a, b in found["kinds"].values()), default=0)
    lines = ["| what | measured | bar | met |", "|---|---|---|---|",
             f"| cause right | {share(found['right'], found['counted'])} | 85 % | {'yes' if found['counted'] and found['right'] / found['counted'] >= 0.85 else '**no**'} |",
             f"| the worst kind | {100 * worst:.0f} % | 60 % | {'yes' if worst >= 0.6 else '**no**'} |",
             f"| false alarms on healthy controls | {share(found['false_alarms'], found['controls'])} | 1 of 60 | {'yes' if found['controls'] >= 60 and found['false_alarms'] <= found['controls'] / 60 else '**no**'} |",
             f"| predicted gain against removing it, beyond max(3 points, 25 %), median | {100 * found['median_excess']:.1f} points ({share(found['gains_within'], found['gains'])} within) | 0 | {'yes' if found['median_excess'] == 0 and found['gains'] else '**no**'} |"]
    lines += ["", "What was done against what was said, runs that count:", "", "| fault \\ verdict | " + " | ".join(said) + " | right | gain of removing it, median |", "|---|" + "---|" * (len(said) + 2)]
    for name in FAULTS:
        these = [row for row in rows if row["fault"] == name and row["counts"]]
        if these:
            counts = collections.Counter(row["said"] for row in these)
            lines.append(f"| {name} | " + " | ".join(str(counts.get(one, "")) for one in said) + f" | {share(sum(r['right'] for r in these), len(these))} | {100 * statistics.median(r['gain'] for r in these):+.0f} % |")
    lines += ["", "Made, and worth less than 5 % here (not counted): " + (", ".join(f"{name} ({sum(1 for r in rows if r['fault'] == name and not r['counts'])})" for name in FAULTS if any(r["fault"] == name and not r["counts"] for r in rows)) or "none") + "."]
    if left_out:
        lines += ["", "Could not be made here: " + ", ".join(left_out) + "."]
    if found["alarms"]:
        lines += ["", "False alarms: " + "; ".join(f"{task}: {verdict} ({detail})" for task, verdict, detail in found["alarms"]) + "."]
    lines += ["", "Every run that counts:", "", "| fault | task | removing it gains | predicted | said | right |", "|---|---|---|---|---|---|"]
    for row in sorted(rows, key=lambda r: (list(FAULTS).index(r["fault"]), r["task"], r["repeat"])):
        if row["counts"]:
            lines.append(f"| {row['fault']} | {row['task']} | {100 * row['gain']:+.0f} % | {100 * row['predicted']:+.0f} % | {row['said']} | {'yes' if row['right'] else '**no**'} |")
    return head + "\n".join(lines) + "\n"


def write_page(root, redline, runs, left_out, note=""):
    done = subprocess.run([str(redline), "machine", "--json"], capture_output=True, text=True)
    facts = json.loads(done.stdout) if done.returncode == 0 else {}
    found = summary(runs)
    base = root / "bench/results" / f"{datetime.date.today().isoformat()}_doctor_outside"
    base.with_suffix(".json").write_text(json.dumps({"schema_version": 1, "workload": "doctor_outside", "machine": facts, **found}, indent=1) + "\n")
    base.with_suffix(".md").write_text(markdown(found, facts, left_out, note))
    print(f"{share(found['right'], found['counted'])} right; false alarms {share(found['false_alarms'], found['controls'])}; gains {share(found['gains_within'], found['gains'])} within", file=sys.stderr)
    return base.with_suffix(".md")
