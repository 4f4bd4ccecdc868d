"""The fourth guide's table on redline: ConvNeXt and its baseline, FP32 and mixed precision, batch 1,024; an epoch's time and memory."""
import sys

from frame import Bar, ROOT, Workload

EPOCH = 8000  # pictures of the recipes' generated set


def workload(env):
    def run(recipe):
        return [sys.executable, ROOT / "bench/convnext/redline_train.py", env.redline, recipe, 3, 1]

    def claim(name, variant, figure="pictures_per_second", sentence="", reference="convnext_fp32"):
        return Bar(figure, variant, reference, claim=name, sentence=sentence)

    memory = "peak_tensor_mib"
    return Workload(
        "guides_convnext", "The guide's four rows: base_channels 64, 4 blocks a stage, 64² pictures, batch 1,024, AdamW; two steps after the first.",
        {"convnext_fp32": run("convnext.yaml"), "convnext_amp": run("convnext_amp.yaml"), "baseline_fp32": run("baseline.yaml"), "baseline_amp": run("baseline_amp.yaml")},
        [claim("amp", "convnext_amp"), claim("memory_amp", "convnext_amp", memory), claim("baseline", "baseline_fp32"),
         claim("memory_baseline", "baseline_fp32", memory), claim("baseline_amp", "baseline_amp"), claim("memory_baseline_amp", "baseline_amp", memory)],
        rounds=3, notes=f"An epoch of the recipes' {EPOCH:,} generated pictures takes {EPOCH:,} / pictures_per_second seconds. The recipes ask for 16-mixed; on a processor without "
        "units for it redline takes bf16-mixed and says so.")
