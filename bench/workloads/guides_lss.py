"""The fifth guide's table: its four recipes as they are (batch 4 / 6 / 8, FP16, workers 8 / 12 / 16), Swin-T at 128 x 352 from 1600 x 900 JPEG; iterations/s, samples/s, memory."""
import sys

from frame import Bar, ROOT, Workload

sys.path.insert(0, str(ROOT / "bench/lss"))
import commands  # noqa: E402

STEPS = (3, 1)


def workload(env):
    variants = {name: commands.recipe(env, f"lss_swin_nuscenes{suffix}", *STEPS)
                for name, suffix in (("original", ""), ("high_memory", "_high_memory"), ("optimized", "_optimized"), ("speed", "_speed"))}

    def claim(name, variant, figure="samples_per_second", sentence=""):
        return Bar(figure, variant, "original", claim=name, sentence=sentence)

    return Workload(
        "guides_lss", "The guide's recipes as they are; FP16 becomes bf16 on a processor without fp16 units, as the recipes' precision says.", variants,
        [claim("batch_8_iterations", "high_memory", "iterations_per_second", "iterations/s"), claim("batch_8", "high_memory", sentence="samples/s"),
         claim("optimized", "optimized", sentence="samples/s"), claim("speed", "speed", sentence="samples/s"),
         claim("memory_high_memory", "high_memory", "peak_rss_bytes", "memory"), claim("memory_optimized", "optimized", "peak_rss_bytes", "memory"),
         claim("memory_speed", "speed", "peak_rss_bytes", "memory")],
        rounds=2, notes="The guide reads batch 8 as 51 % slower than batch 4 because it compares iterations/s; samples/s are what trains.")
