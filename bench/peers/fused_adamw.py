"""PyTorch's fused AdamW on the shapes of bench/optimiser_bench.cpp; prints the median time of a step as JSON.

--clip adds clip_grad_norm_ before each step, as a run that clips does."""
import json
import statistics
import sys
import time

import torch

SHAPES = [(512, 512), (512,), (1024, 512), (1024,), (512, 896), (512,)]


def main():
    seconds = float(sys.argv[sys.argv.index("--seconds") + 1])
    clip = "--clip" in sys.argv
    parameters = []
    for _ in range(16):
        for shape in SHAPES:
            parameter = torch.nn.Parameter(torch.randn(shape) * 0.02)
            parameter.grad = torch.randn(shape) * 1e-3
            parameters.append(parameter)
    optimizer = torch.optim.AdamW(parameters, lr=1e-3, weight_decay=0.01, fused=True)

    def step():
        if clip:
            torch.nn.utils.clip_grad_norm_(parameters, 1e-3)
        optimizer.step()

    for _ in range(3):
        step()
    times, begin = [], time.perf_counter()
    while time.perf_counter() - begin < seconds:
        start = time.perf_counter()
        step()
        times.append(time.perf_counter() - start)
    print(json.dumps({"step_seconds": statistics.median(times)}))


if __name__ == "__main__":
    main()
