"""redline's best settings against Lightning's best of workers 0/2, padding to max or dynamic, eager or torch.compile: 8 sequences a step on both sides."""
import sys

from frame import Bar, ROOT, Workload

sys.path.insert(0, str(ROOT / "bench/vae"))
import commands  # noqa: E402

COMMON = "--gradient_accumulation_steps 2 --batch_size 4 --update_frequency 200".split()
REDLINE = "--batch_size 8 --gradient_accumulation_steps 1 --num_workers 1 --precision 32 --fast_detection".split()


def workload(env):
    variants, bars = {}, []
    for median in (90, 400):
        variants[f"redline_{median}"] = commands.redline(env, median, *REDLINE)
        peers = []
        for workers in (0, 2):
            for mode in ([], ["--compile"]):
                name = f"lightning_{median}_workers_{workers}_dynamic" + ("_compile" if mode else "")
                variants[name] = commands.lightning(env, median, *COMMON, "--num_workers", workers, "--padding", "dynamic", *mode)
                peers.append(name)
        # One batch of 8 instead of two of 4: more padding, fewer calls.
        name = f"lightning_{median}_workers_0_dynamic_batch_8"
        variants[name] = commands.lightning(env, median, "--batch_size", 8, "--gradient_accumulation_steps", 1, "--num_workers", 0)
        peers.append(name)
        bars.append(Bar("sequences_per_second", f"redline_{median}", "|".join(peers), 1.5, sentence=f"median length {median}"))
    return Workload("vae_best", "Each side's best settings, found by hand; 8 sequences a step.", variants, bars,
                    notes="Padding to the maximum of 1,000 is measured in vae_padding: it costs Lightning more than half of its speed.")
