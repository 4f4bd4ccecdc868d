"""A ConvNeXt training step at a fixed input, 64² (dims 64…512, 4 blocks a stage, batch 32): redline against timm in a plain PyTorch loop."""
import sys

from frame import Bar, ROOT, Workload

sys.path.insert(0, str(ROOT / "bench/speech"))
import jobs  # noqa: E402

STEPS = 5


def peers(env, size, steps):
    return {f"timm_{mode}": jobs.Server(env, "../convnext/timm_step.py", "--size", size, "--mode", mode, warm_up=2, ask=steps)
            for mode in ("eager", "channels_last", "compile")}


def bars(names, best, eager):
    against = [Bar("step_ms", "redline", "|".join(names), best, smaller_is_better=True, sentence="against the best of eager, channels-last and compiled"),
               Bar("step_mib", "redline", "|".join(names), 1 / 0.6, smaller_is_better=True, sentence="growth of the process while stepping (at most 0.6×)")]
    if eager:
        against.insert(1, Bar("step_ms", "redline", "timm_eager", eager, smaller_is_better=True, sentence="against plain eager"))
    return against


def workload(env):
    timm = peers(env, "small", STEPS)
    return Workload(
        "convnext_step", "A training step (forward, backward, AdamW, gradients released), 32 × 64², dims 64 128 256 512, depths 4 4 4 4 (the guide's base_channels 64, num_blocks 4), fp32, 2 threads.",
        {"redline": [env.build / "bench/convnext_step_bench", STEPS, "small", 1, 2], **timm}, bars(timm, 1.6, 2.2))
