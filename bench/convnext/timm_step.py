"""timm's ConvNeXt, a training step at a fixed input in a plain PyTorch loop, as the peer of bench/convnext_step_bench: zero_grad, forward, backward, AdamW
(PyTorch's default loop over tensors in plain eager, its fused kernel in the other two).

Serves rounds on stdin/stdout, so that it can be interleaved with redline in one session: a line "N" runs N steps and answers with their times
in milliseconds as JSON. Run inside the peers' environment (timm 1.0.31, torch 2.13.0).
"""
import argparse
import ctypes
import json
import os
import resource
import sys
import time
import warnings

warnings.filterwarnings("ignore")
real_stdout = os.dup(1)
os.dup2(2, 1)

import timm_import  # noqa: E402, F401
import torch  # noqa: E402
from timm.models.convnext import ConvNeXt  # noqa: E402

SIZES = {
    "small": dict(dims=[64, 128, 256, 512], depths=[4, 4, 4, 4], classes=10, side=64, batch=32),
    "tiny": dict(dims=[96, 192, 384, 768], depths=[3, 3, 9, 3], classes=1000, side=224, batch=8),
}


def resident_mib():
    """Of now, not the peak; what was freed is given back first."""
    ctypes.CDLL(None).malloc_trim(0)
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) / 256


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--size", choices=SIZES, default="small")
    parser.add_argument("--mode", choices=["eager", "channels_last", "compile"], default="eager")
    parser.add_argument("--precision", choices=["32", "bf16"], default="32")
    parser.add_argument("--threads", type=int, default=2)
    args = parser.parse_args()
    size = SIZES[args.size]
    torch.set_num_threads(args.threads)
    torch.manual_seed(1)
    model = ConvNeXt(num_classes=size["classes"], dims=size["dims"], depths=size["depths"])
    model.train()
    images = torch.randn(size["batch"], 3, size["side"], size["side"])
    labels = torch.arange(size["batch"]) % size["classes"]
    if args.mode == "channels_last":
        model, images = model.to(memory_format=torch.channels_last), images.to(memory_format=torch.channels_last)
    forward = torch.compile(model) if args.mode == "compile" else model

    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=0.05, fused=True if args.mode != "eager" else None)
    for parameter in model.parameters():  # the moments belong to the run, not to a step: a step at rate 0 makes them
        parameter.grad = torch.zeros_like(parameter)
    for group in optimizer.param_groups:
        group["lr"] = 0.0
    optimizer.step()
    optimizer.zero_grad()
    for group in optimizer.param_groups:
        group["lr"] = 1e-3

    def step():
        begin = time.perf_counter()
        with torch.autocast("cpu", torch.bfloat16, enabled=args.precision == "bf16"):
            logits = forward(images)
        loss = torch.nn.functional.cross_entropy(logits.float(), labels)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        elapsed = time.perf_counter() - begin
        return elapsed * 1e3, float(loss.detach())

    base_mib = resident_mib()
    answer = os.fdopen(real_stdout, "w", buffering=1)
    print(json.dumps({"ready": True, "parameters": sum(p.numel() for p in model.parameters())}), file=answer)
    for line in sys.stdin:
        results = [step() for _ in range(int(line))]
        print(json.dumps({"ms": [r[0] for r in results], "loss": results[-1][1],
                          "peak_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024, "base_mib": base_mib}), file=answer)


if __name__ == "__main__":
    main()
