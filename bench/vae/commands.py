"""Generated sequences for the sequence VAE's benchmarks and the commands both sides run on them."""
import pathlib
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
# Optimiser steps of 8 sequences: (all, not timed). Long sequences need fewer for the same time.
STEPS = {90: (22, 4), 400: (7, 2)}


def sequences(env, median, rows=4000):
    folder = env.work / f"vae_sequences_{median}"
    if not folder.exists():
        temporary = folder.with_name(folder.name + ".part")
        subprocess.run([str(env.redline), "data", "synth", "sequences", "--out", str(temporary), "--num", str(rows), "--seed", "1", "--vocab_size",
                        "1000", "--median_length", str(median), "--max_length", "1000"], check=True, stdout=sys.stderr)
        temporary.rename(folder)
    return folder / "train"


def redline(env, median, *words, steps=None):
    total, warm_up = steps or STEPS[median]
    return [sys.executable, HERE / "redline_train.py", env.redline, sequences(env, median), total, warm_up, *words]


def lightning(env, median, *words, steps=None):
    total, warm_up = steps or STEPS[median]
    return [env.peers_python, HERE / "lightning_train.py", sequences(env, median), "--steps", total, "--warm_up", warm_up, *words]
