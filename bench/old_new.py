#!/usr/bin/env python3
"""Is this build as fast as an older one? The workloads' own redline commands from both builds in turns (A B B A), ratios with 95 % intervals.

    bench/old_new.py NEW_BUILD OLD_BUILD [workload ...]

A figure is held when the new build reaches 98 % of the old one, or the interval of their ratio includes it and more than 100 %: then the machine was too
noisy to tell, and the page says so."""
import datetime
import os
import pathlib
import statistics
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import frame  # noqa: E402

BAR = 0.98
# workload -> (variant, figure, whether smaller is better)
FIGURES = {
    "loop": [("redline", "small_step_milliseconds", True), ("redline", "larger_step_milliseconds", True)],
    "guards": [("redline", "step_milliseconds", True)],
    "speech_step": [("redline", "step_ms", True)],
    "checkpoint": [("redline", "blocking_seconds", True), ("redline", "load_gigabytes_per_second", False)],
    "data_flac": [("redline", "samples_per_second", False)],
    "data_parquet": [("small_redline_0", "samples_per_second", False), ("small_redline_1", "samples_per_second", False)],
    "vae_train": [("redline_quick_90", "sequences_per_second", False), ("redline_best_90", "sequences_per_second", False)],
}


def commands(name, env):
    path = frame.ROOT / "bench/workloads" / f"{name}.py"
    scope = {"__file__": str(path)}
    exec(compile(path.read_text(), str(path), "exec"), scope)
    return scope["workload"](env)


def compare(name, new, old, rounds):
    workload_new, workload_old = commands(name, new), commands(name, old)
    rows = []
    for variant in dict.fromkeys(variant for variant, _, _ in FIGURES[name]):
        both = frame.Workload(f"{name} {variant}", "", {"new": workload_new.variants[variant], "old": workload_old.variants[variant]}, [], rounds=rounds)
        figures = frame.measure(both)
        for of, figure, smaller in FIGURES[name]:
            if of != variant:
                continue
            values = {side: [f[figure] for f in figures[side]] for side in figures}
            ratio, low, high = frame.bootstrap_ratio(values["new"], values["old"], smaller)
            verdict = "held" if ratio >= BAR else "too noisy to tell" if high >= 1 else "**slower**"
            rows.append((name, variant, figure, statistics.median(values["new"]), statistics.median(values["old"]), ratio, low, high, verdict))
            print(f"  {name} {variant} {figure}: {ratio:.3f}x ({low:.3f} - {high:.3f}): {verdict}", flush=True)
    return rows


def main(argv):
    builds = [(frame.ROOT / word).resolve() for word in argv[:2]]
    work = pathlib.Path(os.environ.get("REDLINE_BENCH_DIR", frame.ROOT / ".cache/bench"))
    work.mkdir(parents=True, exist_ok=True)
    new, old = (frame.Env(build, build / "redline", frame.ROOT / ".venv-peers/bin/python", work) for build in builds)
    rows = [row for name in argv[2:] or FIGURES for row in compare(name, new, old, int(os.environ.get("REDLINE_ROUNDS", "6")))]
    facts = frame.machine_facts(new.redline)
    date = datetime.date.today().isoformat()
    lines = [f"# This build against an older one, {date}", "",
             f"Machine: {facts.get('cpu_model', '?')}, {facts.get('allowed_cpus', '?')} cores. Reproduce: `bench/old_new.py build OLD_BUILD`. "
             f"In turns (A B B A); held: at least {BAR:g} of the older speed.", "",
             "| workload | variant | figure | new | old | speed, new over old (95 % interval) | |", "|---|---|---|---|---|---|---|"]
    lines += [f"| {n} | {v} | {f} | {a:.4g} | {b:.4g} | {r:.3f}× ({lo:.3f} – {hi:.3f}) | {word} |" for n, v, f, a, b, r, lo, hi, word in rows]
    page = frame.ROOT / "bench/results" / f"{date}_old_new.md"
    page.write_text("\n".join(lines) + "\n")
    print(f"-> {page.relative_to(frame.ROOT)}")
    return 1 if any(row[-1] == "**slower**" for row in rows) else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
