"""Lightning's settings one by one, to find its best: workers 0/2, padding to max or dynamic, eager or torch.compile."""
import sys

from frame import Bar, ROOT, Workload

sys.path.insert(0, str(ROOT / "bench/vae"))
import commands  # noqa: E402


def workload(env):
    settings = {"workers_0": ["--num_workers", "0"], "workers_2": ["--num_workers", "2"], "workers_0_compile": ["--num_workers", "0", "--compile"],
                "workers_0_max": ["--num_workers", "0", "--padding", "max"]}
    return Workload("vae_peer_settings", "Median length 90, batch 4 x 2; warm-up (and compilation) not timed.",
                    {name: commands.lightning(env, 90, *words, steps=(3, 1) if "max" in name else (12, 3)) for name, words in settings.items()},
                    [Bar("sequences_per_second", "workers_0_compile", "workers_0", claim="compile")], rounds=1,
                    notes="Mixed precision is left out: in fp32 a step takes 1 s here, in bf16 about thirty times as long (see guides_vae).")
