"""Lightning's settings one by one, to find its best: workers 0/2, padding to max or dynamic, eager or torch.compile, fp32 or bf16, batch 4 x 2 or 8."""
import sys

from frame import Bar, ROOT, Workload

sys.path.insert(0, str(ROOT / "bench/vae"))
import commands  # noqa: E402


def workload(env):
    settings = {"workers_0": ["--num_workers", "0"], "workers_2": ["--num_workers", "2"],
                "workers_0_batch_8": ["--num_workers", "0", "--batch_size", "8", "--gradient_accumulation_steps", "1"],
                "workers_0_max": ["--num_workers", "0", "--padding", "max"], "workers_0_bf16": ["--num_workers", "0", "--precision", "bf16-mixed"],
                "workers_0_compile": ["--num_workers", "0", "--compile"],
                "workers_0_max_compile": ["--num_workers", "0", "--padding", "max", "--compile"]}
    slow = ("max", "bf16")
    return Workload("vae_peer_settings", "Median length 90; warm-up (and compilation) not timed.",
                    {name: commands.lightning(env, 90, *words, steps=(5, 2) if any(s in name for s in slow) else (22, 4))
                     for name, words in settings.items()},
                    [Bar("sequences_per_second", "workers_0_compile", "workers_0", claim="compile")], rounds=1)
