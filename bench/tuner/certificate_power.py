"""How often a certificate errs: changes that do harm and changes that do none, each judged anew from other seeds.

certificate_power.py REDLINE FOLDER [REPEATS]: prints the table. Nothing here is timed, so that two processes run at once.
"""
import collections
import concurrent.futures
import json
import os
import pathlib
import subprocess
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import proof_jobs

ROOT = pathlib.Path(__file__).resolve().parents[2]
CERTIFIED = {"identical", "within noise", "not worse"}
FIRST_SEED = 1001  # the jobs were made with others


def bad(task):
    """name -> (how it is presented, setting). `with`: it may train differently; `alike`: it claims to change numbers or order only."""
    rows, rate = proof_jobs.BATCH[task], proof_jobs.RATE[task]
    changes = {"lr 0": ("with", "model.optim.lr=0 model.optim.sched.min_lr=0"), "lr x 8": ("with", f"model.optim.lr={8 * rate:g}"),
               "8 x fewer updates": ("with", proof_jobs.larger_batch(task, 8)),
               "half the data": ("with", proof_jobs.HALF[task]), "dropout off": ("alike", proof_jobs.NO_DROPOUT[task])}
    if task == "vae":  # the batch with its rate, the KL term's warm-up left behind
        changes["stale KL"] = ("with", proof_jobs.larger_batch(task, 8) + f" model.optim.scale_lr=sqrt model.optim.base_batch_size={rows}")
    return changes


def harmless(bf16):
    changes = {"itself": ("alike", ""), "more workers": ("alike", "model.train_ds.num_workers=2"),
               "buckets": ("alike", "model.train_ds.use_bucketing=true model.train_ds.num_buckets=4")}
    if bf16:
        changes["bf16"] = ("alike", "trainer.precision=bf16-mixed trainer.precision_strict=true")
    return changes


def has_bf16_units(redline):
    machine = json.loads(subprocess.run([redline, "--json", "machine"], capture_output=True, text=True, check=True).stdout)
    return machine["gemm_bf16_gflops"] > 0.5 * machine["gemm_fp32_gflops"]


def one_repeat(redline, folder, task, seed, changes):
    """The verdicts from one seed; kept, so that a campaign that was stopped goes on."""
    kept = folder / f"{task}_{seed}.json"
    if not kept.exists():
        kept.write_text(json.dumps(judge(redline, folder, task, seed, changes)))
    return json.loads(kept.read_text())


def judge(redline, folder, task, seed, changes):
    words = [word for how, setting in changes.values() for word in (f"--{how}", setting)]
    # The order of the answer is that of the words: first what is --with, then what is --alike.
    order = [name for wanted in ("with", "alike") for name, (how, _) in changes.items() if how == wanted]
    done = subprocess.run([redline, "--json", "certify", f"{task}.yaml", f"seed={seed}", "--steps", str(proof_jobs.STEPS[task]), *words],
                          capture_output=True, text=True, cwd=folder, env=os.environ | {"OMP_NUM_THREADS": "1"})
    if done.returncode != 0:
        raise RuntimeError(f"{task} seed {seed}: {done.stderr[-2000:]}")
    rows = json.loads(done.stdout)["settings"]
    return [(task, name, row) for name, row in zip(order, rows, strict=True)]


def campaign(redline, folder, repeats):
    folder = pathlib.Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    redline = str(pathlib.Path(redline).resolve())
    bf16 = has_bf16_units(redline)
    for task, recipe in proof_jobs.RECIPES.items():
        (folder / f"{task}.yaml").write_text(recipe.format(root=ROOT))
    found = []
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        # The generated data are made by the first of each task alone.
        first = [one_repeat(redline, folder, task, FIRST_SEED, bad(task) | harmless(bf16)) for task in proof_jobs.RECIPES]
        rest = [pool.submit(one_repeat, redline, folder, task, seed, bad(task) | harmless(bf16))
                for seed in range(FIRST_SEED + 1, FIRST_SEED + repeats) for task in proof_jobs.RECIPES]
        for rows in first + [one.result() for one in rest]:
            for task, name, row in rows:
                certificate = row.get("certificate", {})
                paired = certificate.get("paired") or {}
                kind = certificate.get("kind", "failed: " + row["failure"])
                found.append({"task": task, "change": name, "bad": name in bad(task), "kind": kind, "certified": kind in CERTIFIED,
                              "pairs": paired.get("pairs"), "power": paired.get("power"), "difference": paired.get("difference"), "margin": paired.get("margin")})
    return found


def table(found):
    groups = collections.OrderedDict()
    for one in found:
        groups.setdefault((one["task"], one["change"]), []).append(one)
    lines = ["| task | change | certified | verdicts | pairs (mean) | difference / margin (mean) |", "|---|---|---|---|---|---|"]
    for (task, change), ones in groups.items():
        kinds = collections.Counter(one["kind"] for one in ones)
        pairs = [one["pairs"] for one in ones if one["pairs"]]
        ratios = [one["difference"] / one["margin"] for one in ones if one["margin"] and isinstance(one["difference"], float)]
        lines.append(f"| {task} | {change} | {sum(one['certified'] for one in ones)} of {len(ones)} | {', '.join(f'{k} {n}' for k, n in kinds.items())} | "
                     f"{sum(pairs) / max(1, len(pairs)):.1f} | {sum(ratios) / max(1, len(ratios)):+.2f} |")
    return lines


def shares(found):
    bad_ones, good = [f for f in found if f["bad"]], [f for f in found if not f["bad"]]
    return {"bad_certified_percent": 100 * sum(f["certified"] for f in bad_ones) / len(bad_ones), "bad": len(bad_ones),
            "harmless_not_certified_percent": 100 * sum(not f["certified"] for f in good) / len(good), "harmless": len(good)}


if __name__ == "__main__":
    results = campaign(sys.argv[1], sys.argv[2], int(sys.argv[3]) if len(sys.argv) > 3 else 20)
    print("\n".join(table(results)))
    print(json.dumps(shares(results)))
