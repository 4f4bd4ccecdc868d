"""A ConvNeXt-T training step at a fixed input, 224², batch 8: redline against timm in a plain PyTorch loop."""
from frame import Workload
from workloads.convnext_step import bars, peers

STEPS = 2


def workload(env):
    timm = peers(env, "tiny", STEPS)
    return Workload("convnext_step_224", "A training step (forward, backward, AdamW, gradients released), ConvNeXt-T, 8 × 224², fp32, 2 threads.",
                    {"redline": [env.build / "bench/convnext_step_bench", STEPS, "tiny", 1, 2], **timm}, bars(timm, 1.4, 0), rounds=3)
