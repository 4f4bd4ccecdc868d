"""Keyed dropout against torch::dropout, forward and backward, on the shapes of a speech model; interleaved in one process."""
import json
import subprocess

from frame import Bar, Workload

SHAPES = ("activations fp32", "narrow activations fp32", "attention fp32", "small attention fp32", "large fp32", "activations bf16", "tiny fp32")


def workload(env):
    """The figure is the time of keyed dropout over torch's; that of a process with the machine's threads."""
    def figures():
        done = subprocess.run([env.build / "bench" / "dropout_bench"], check=True, capture_output=True, text=True)
        ratios = json.loads(done.stdout.splitlines()[-1])
        most = max(int(name.split(", ")[-1].split()[0]) for name in ratios)
        return {shape: ratios[f"{shape}, {most} threads"] for shape in SHAPES} | {f"{shape}, 1 thread": ratios[f"{shape}, 1 threads"] for shape in SHAPES}

    return Workload(
        name="dropout",
        sentence="Keyed dropout (the same numbers however a batch is split; masks regenerated in backward) against torch::dropout",
        variants={"redline": figures},
        bars=[Bar(shape, "redline", "redline", smaller_is_better=True, at_most=1.0, sentence="time over torch::dropout's") for shape in SHAPES],
    )
