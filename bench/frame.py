"""The shared frame of the benchmarks: declared workloads, interleaved runs, medians with bootstrap intervals, dated results.

A workload is a Python file in bench/workloads with a function `workload(env) -> Workload`. Each variant is a command whose last line on
stdout is one JSON object of figures; or a Python callable that returns such a dict. Variants run A B B A, B A A B, ... so that drift of
a shared machine cancels. A peer that fails to run fails the benchmark: it is never counted as a win.
"""
import dataclasses
import datetime
import json
import os
import pathlib
import random
import statistics
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent


@dataclasses.dataclass
class Bar:
    """ratio = figure of `better` over figure of `reference` (or the inverse when a smaller figure is better)."""
    figure: str                 # key in the variants' JSON
    better: str                 # variant that should win, usually "redline"
    reference: str              # variant (or several separated by "|": the best of them) it is compared with
    at_least: float = 1.0       # the bar as a ratio >= 1 means "better is that many times better"
    smaller_is_better: bool = False
    sentence: str = ""
    extra_at_most: float = None  # instead of a ratio: the figure of `better` may exceed the reference's by at most this
    at_most: float = None        # instead of a ratio: the figure of `better` itself may be at most this (reference = better)
    claim: str = ""              # a guide's claim this ratio answers (docs/guides_claims.json); such a row has no bar of its own
    chosen_by: str = ""          # the figure by which the best of several references is chosen; `figure` itself when empty


@dataclasses.dataclass
class Workload:
    name: str
    sentence: str
    variants: dict              # name -> command list or callable
    bars: list
    rounds: int = 5
    timeout_seconds: float = 900
    notes: str = ""


@dataclasses.dataclass
class Env:
    build: pathlib.Path
    redline: pathlib.Path
    peers_python: pathlib.Path
    work: pathlib.Path          # scratch folder that survives between workloads of one run


def interleaved_order(variants, block):
    order = list(variants)
    forward = order if block % 2 == 0 else order[::-1]
    return forward if len(order) != 2 else forward + forward[::-1]


def run_variant(command, timeout):
    if callable(command):
        return command()
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True, timeout=timeout)
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(map(str, command))} failed with {done.returncode}:\n{done.stderr[-2000:]}")
    for line in reversed(done.stdout.splitlines()):
        if line.startswith("{"):
            return json.loads(line)
    raise RuntimeError(f"{command[0]} printed no JSON line")


def bootstrap_ratio(better, reference, invert, resamples=2000, seed=1):
    """Ratio of medians with a 95 % percentile interval; values of the two lists were measured in the same run, interleaved."""
    draw = random.Random(seed)

    def ratio(a, b):
        a, b = statistics.median(a), statistics.median(b)
        return (b / a) if invert else (a / b)

    values = sorted(ratio(draw.choices(better, k=len(better)), draw.choices(reference, k=len(reference))) for _ in range(resamples))
    return ratio(better, reference), values[int(0.025 * resamples)], values[int(0.975 * resamples)]


def bootstrap_median(values, resamples=2000, seed=1):
    draw = random.Random(seed)
    medians = sorted(statistics.median(draw.choices(values, k=len(values))) for _ in range(resamples))
    return statistics.median(values), medians[int(0.025 * resamples)], medians[int(0.975 * resamples)]


def measure(workload, log=print):
    figures = {name: [] for name in workload.variants}
    for block in range(workload.rounds):
        for name in interleaved_order(workload.variants, block):
            figures[name].append(run_variant(workload.variants[name], workload.timeout_seconds))
            log(f"  {workload.name} round {block + 1}/{workload.rounds} {name}: {json.dumps(figures[name][-1])[:160]}")
    return figures


def judge(workload, figures):
    rows = []
    for bar in workload.bars:
        references = bar.reference.split("|")
        pick = min if bar.smaller_is_better and not bar.chosen_by else max
        best = pick(references, key=lambda name: statistics.median(f[bar.chosen_by or bar.figure] for f in figures[name]))
        better = [f[bar.figure] for f in figures[bar.better]]
        reference = [f[bar.figure] for f in figures[best]]
        # A figure that is held against a number of its own has no peer: its median stands in the ratio's place.
        ratio, low, high = bootstrap_median(better) if bar.at_most is not None else bootstrap_ratio(better, reference, bar.smaller_is_better)
        extra = statistics.median(better) - statistics.median(reference)
        if bar.at_most is not None:
            met = statistics.median(better) <= bar.at_most
        else:
            met = ratio >= bar.at_least if bar.extra_at_most is None else extra <= bar.extra_at_most
        rows.append({"figure": bar.figure, "better": bar.better, "reference": best, "ratio": ratio, "low": low, "high": high,
                     "bar": bar.at_least, "extra": extra, "extra_at_most": bar.extra_at_most, "at_most": bar.at_most, "met": met or bool(bar.claim), "sentence": bar.sentence, "claim": bar.claim,
                     "better_median": statistics.median(better), "reference_median": statistics.median(reference)})
    return rows


def machine_facts(redline):
    done = subprocess.run([str(redline), "machine", "--json"], capture_output=True, text=True)
    return json.loads(done.stdout) if done.returncode == 0 else {"error": done.stderr[-500:]}


def bar_text(row):
    if row["claim"]:
        return "none: a claim"
    if row["at_most"] is not None:
        return f"at most {row['at_most']:g}"
    return f"{row['bar']:g}×" if row["extra_at_most"] is None else f"{row['extra']:+.4g} of {row['extra_at_most']:+.4g} allowed"


def measured_text(row):
    if row["at_most"] is not None:
        return f"{row['ratio']:.4g} ({row['low']:.4g} – {row['high']:.4g})"
    return f"{row['ratio']:.2f}× ({row['low']:.2f} – {row['high']:.2f})"


def markdown(workload, rows, figures, facts):
    lines = [f"## {workload.name}", "", workload.sentence, ""]
    lines += ["| figure | redline | best peer | ratio or figure (95 % interval) | bar | met |", "|---|---|---|---|---|---|"]
    for row in rows:
        lines.append(f"| {row['figure']}{': ' + row['sentence'] if row['sentence'] else ''} | {row['better']} {row['better_median']:.4g} | "
                     f"{'-' if row['at_most'] is not None else row['reference'] + format(row['reference_median'], ' .4g')} | {measured_text(row)} | "
                     f"{bar_text(row)} | {'yes' if row['met'] else '**no**'} |")
    keys = sorted({key for values in figures.values() for f in values for key, v in f.items() if isinstance(v, (int, float))})
    lines += ["", "All variants, medians:", "", "| variant | " + " | ".join(keys) + " |", "|---|" + "---|" * len(keys)]
    for name, values in figures.items():
        cells = [f"{statistics.median([f[k] for f in values if k in f]):.4g}" if any(k in f for f in values) else "" for k in keys]
        lines.append(f"| {name} | " + " | ".join(cells) + " |")
    if workload.notes:
        lines += ["", workload.notes]
    return "\n".join(lines) + "\n"


def write_results(workload, rows, figures, facts):
    date = datetime.date.today().isoformat()
    base = ROOT / "bench/results" / f"{date}_{workload.name}"
    base.with_suffix(".json").write_text(json.dumps(
        {"schema_version": 1, "workload": workload.name, "date": date, "bars": rows, "figures": figures, "machine": facts,
         "claims": {row["claim"]: {key: row[key] for key in ("ratio", "low", "high")} for row in rows if row["claim"]}}, indent=1) + "\n")
    head = f"# {workload.name}, {date}\n\nMachine: {facts.get('cpu_model', '?')}, {facts.get('allowed_cpus', '?')} cores. "
    head += f"Reproduce: `bench/run build {workload.name}`.\n\n"
    base.with_suffix(".md").write_text(head + markdown(workload, rows, figures, facts))
    return base.with_suffix(".md")


def main(argv):
    build = (ROOT / (argv[0] if argv else "build")).resolve()
    sys.path.insert(0, str(ROOT / "bench"))
    wanted = argv[1:]
    work = pathlib.Path(os.environ.get("REDLINE_BENCH_DIR", ROOT / ".cache/bench"))
    work.mkdir(parents=True, exist_ok=True)
    env = Env(build, build / "redline", ROOT / ".venv-peers/bin/python", work)
    facts = machine_facts(env.redline)
    missed = 0
    for path in sorted((ROOT / "bench/workloads").glob("*.py")):
        if wanted and path.stem not in wanted:
            continue
        scope = {"__file__": str(path)}
        exec(compile(path.read_text(), str(path), "exec"), scope)
        workload = scope["workload"](env)
        print(f"{workload.name}: {workload.sentence}")
        figures = measure(workload)
        rows = judge(workload, figures)
        page = write_results(workload, rows, figures, facts)
        for row in rows:
            missed += not row["met"]
            print(f"  {row['figure']}: {measured_text(row)}, bar {bar_text(row)}: {'met' if row['met'] else 'MISSED'}")
        print(f"  -> {page.relative_to(ROOT)}")
    return 1 if missed else 0
