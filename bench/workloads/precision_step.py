"""Forward + backward in fp32 and bf16-mixed in turns in one process, all tasks: what the low precision gains, its share of the bf16 matrix rate, memory."""
from frame import Bar, Workload

# Times faster than fp32, share of the measured bf16 matrix rate, peak of tensor memory against fp32's.
BARS = {"speech": (1.6, 0.5, 0.7), "vae": (1.6, 0.45, 0.7), "convnext": (1.6, 0.45, 0.65), "convnext_t": (1.6, 0.45, 0.65), "lss": (1.5, 0.45, 0.7)}


def workload(env):
    bars = []
    for name, (speed, share, memory) in BARS.items():
        bars += [Bar("bf16_time", name, name, at_most=round(1 / speed, 4), sentence=f"{name}: time in bf16 over fp32 ({speed}× faster)"),
                 Bar("bf16_rate_over_made", name, name, at_most=round(1 / share, 4), sentence=f"{name}: the bf16 matrix rate over what the step makes (a share of {share})"),
                 Bar("memory_ratio", name, name, at_most=memory, sentence=f"{name}: peak tensor memory over fp32's")]
    return Workload("precision_step", "Forward + backward, fp32 and bf16-mixed in turns, 2 threads: speech 8 × 8 s, VAE median 400, ConvNeXt 64² and 224², Lift-Splat-Shoot 128×352.",
                    {name: [env.build / "bench/precision_bench", name, 6, 2] for name in BARS}, bars)
