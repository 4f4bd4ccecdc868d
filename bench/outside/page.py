"""The page of the outside bench: what was done to the job against what the doctor said."""
import collections
import datetime
import json
import statistics
import subprocess
import sys

from outside.faults import FAULTS
from outside.jobs import LIFTED

LEAST_GAIN = 0.05
STRANGERS = 0.08


def right(name, said):
    return any(said["verdict"] == verdict and detail in (None, said["detail"]) for verdict, detail in FAULTS[name].right)


def quiet(one):
    return one is not None and one["strangers"] < STRANGERS and one["rate"] > 0


def lifted_gains(runs):
    """{task: {change: what lifting that limit of the healthy job gains}}: medians over the repeats, each against the healthy runs around it."""
    by_key = {tuple(one["key"]): one for one in runs}
    found = collections.defaultdict(lambda: collections.defaultdict(list))
    for (repeat, task, name, place), one in by_key.items():
        twins = [twin["rate"] for at in (place, place + 1) if quiet(twin := by_key.get((repeat, task, "healthy", at)))]
        if name.startswith("lifted ") and quiet(one) and twins:
            found[task][name.removeprefix("lifted ")].append(one["rate"] / statistics.mean(twins) - 1)
    return {task: {name: statistics.median(gains) for name, gains in changes.items()} for task, changes in found.items()}


def shown_healthy(task, gains):
    """Every change that might lift a limit of this job was measured, and none is worth naming."""
    wanted = [name for name, (changes, _) in LIFTED.items() if task in changes]
    return all(name in gains.get(task, {}) and gains[task][name] < LEAST_GAIN for name in wanted)


def false_alarm(task, said, gains):
    """A verdict about a job that nobody disturbed, where lifting what it names was not seen to gain what is worth naming."""
    if said["verdict"] in ("compute-bound", "balanced"):
        return False
    changes = [name for name, (_, verdicts) in LIFTED.items() if said["verdict"] in verdicts]
    return not any(gains.get(task, {}).get(name, 0.0) >= LEAST_GAIN for name in changes)


def judged(runs):
    """Each fault with what removing it gains, by the healthy runs around it or by its own twin."""
    by_key = {tuple(one["key"]): one for one in runs}
    rows = []
    for (repeat, task, name, place), one in by_key.items():
        if name not in FAULTS:
            continue
        if FAULTS[name].removed_words:
            twins = [by_key.get((repeat, task, f"without {name}", place))]
        else:
            twins = [by_key.get((repeat, task, "healthy", at)) for at in (place, place + 1)]
        rates = [twin["rate"] for twin in twins if quiet(twin)]
        if not rates or one["rate"] <= 0:
            continue
        gain = statistics.mean(rates) / one["rate"] - 1
        counts = min(rates) / one["rate"] - 1 >= LEAST_GAIN and quiet(one)  # against each of them
        said = one["answer"]
        rows.append({"repeat": repeat, "task": task, "fault": name, "gain": gain, "counts": counts, "right": right(name, said),
                     "said": f"{said['verdict']} ({said['detail']})" if said["detail"] else said["verdict"], "predicted": said["gain"], "sentence": said["sentence"]})
    return rows


def summary(runs):
    rows = judged(runs)
    counted = [row for row in rows if row["counts"]]
    gains = lifted_gains(runs)
    undisturbed = [one for one in runs if one["key"][2] == "healthy" and quiet(one)]
    controls = [one for one in undisturbed if shown_healthy(one["key"][1], gains)]
    # A cause that is not there is a false alarm on any job; one that is there and was not named is missed.
    there = {task: [name for name, gain in changes.items() if gain >= LEAST_GAIN] for task, changes in gains.items()}
    missed = [one for one in undisturbed if there.get(one["key"][1]) and not any(one["answer"]["verdict"] in LIFTED[name][1] for name in there[one["key"][1]])]
    alarms = [one for one in undisturbed if false_alarm(one["key"][1], one["answer"], gains)]
    errors = [max(0.0, abs(row["predicted"] - row["gain"]) - max(0.03, 0.25 * row["gain"])) for row in counted if row["right"]]
    kinds = collections.defaultdict(list)
    for row in counted:
        kinds[row["fault"]].append(row["right"])
    return {"rows": rows, "counted": len(counted), "right": sum(row["right"] for row in counted), "controls": len(controls), "undisturbed": len(undisturbed), "false_alarms": len(alarms), "lifted": gains, "missed": len(missed),
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
             "A fault counts where the job without it, measured beside it, is at least 5 % faster. A control is a run of the job as it is, where no change that lifts a limit of its own was "
             "measured to gain 5 %; an alarm is false where lifting what it names does not.\n\n")
    if note:
        head += note + "\n\n"
    # A bar is met by the whole bench, not by a piece of it.
    whole = all(len({row["repeat"] for row in rows if row["fault"] == name}) >= 5 for name in FAULTS if name not in left_out)
    yes = "yes" if whole else "by what was run"
    worst = min((a / b for a, b in found["kinds"].values()), default=0)
    lines = ["| what | measured | bar | met |", "|---|---|---|---|",
             f"| cause right | {share(found['right'], found['counted'])} | 85 % | {yes if found['counted'] and found['right'] / found['counted'] >= 0.85 else '**no**'} |",
             f"| the worst kind | {100 * worst:.0f} % | 60 % | {yes if worst >= 0.6 else '**no**'} |",
             f"| false alarms on healthy controls | {share(found['false_alarms'], found['undisturbed'])}; {found['controls']} of these were shown to be healthy | 1 of 60 | {'yes' if found['controls'] >= 60 and found['false_alarms'] <= found['controls'] / 60 else '**no**'} |",
             f"| predicted gain against removing it, beyond max(3 points, 25 %), median | {100 * found['median_excess']:.1f} points ({share(found['gains_within'], found['gains'])} within) | 0 | {yes if found['median_excess'] == 0 and found['gains'] else '**no**'} |"]
    lines += ["", "What was done against what was said, runs that count:", "", "| fault \\ verdict | " + " | ".join(said) + " | right | gain of removing it, median |", "|---|" + "---|" * (len(said) + 2)]
    for name in FAULTS:
        these = [row for row in rows if row["fault"] == name and row["counts"]]
        if these:
            counts = collections.Counter(row["said"] for row in these)
            lines.append(f"| {name} | " + " | ".join(str(counts.get(one, "")) for one in said) + f" | {share(sum(r['right'] for r in these), len(these))} | {100 * statistics.median(r['gain'] for r in these):+.0f} % |")
    lines += ["", "Made, and worth less than 5 % here (not counted): " + (", ".join(f"{name} ({sum(1 for r in rows if r['fault'] == name and not r['counts'])})" for name in FAULTS if any(r["fault"] == name and not r["counts"] for r in rows)) or "none") + "."]
    if left_out:
        lines += ["", "Could not be made here: " + ", ".join(left_out) + "."]
    if found["lifted"]:
        names = [name for name in LIFTED if any(name in changes for changes in found["lifted"].values())]
        lines += ["", "What lifting a limit of the jobs as they are gains, median:", "", "| task | " + " | ".join(names) + " |", "|---|" + "---|" * len(names)]
        lines += [f"| {task} | " + " | ".join(f"{100 * changes[name]:+.0f} %" if name in changes else "" for name in names) + " |" for task, changes in found["lifted"].items()]
        lines += ["", f"Where that is 5 % or more the job has this limit, and is no control; the doctor did not name it in {found['missed']} runs of such jobs as they are."]
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
    print(f"{share(found['right'], found['counted'])} right; false alarms {share(found['false_alarms'], found['undisturbed'])}, {found['controls']} shown healthy; gains {share(found['gains_within'], found['gains'])} within", file=sys.stderr)
    return base.with_suffix(".md")
