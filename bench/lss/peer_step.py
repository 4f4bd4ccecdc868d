"""Forward + backward of the PyTorch peer at the shapes of bench/lss_step_bench.cpp. Arguments: small|swin_t|splat BATCH STEPS THREADS [check FIXTURE]."""
import json
import math
import sys
import time

import torch

from peer_model import LiftSplat

SIZES = {"small": dict(xbound=[-48, 48, 2], ybound=[-48, 48, 2], zbound=[-10, 10, 20], dbound=[4, 44, 5], size=(64, 192), channels=16, width=24,
                       layers=(1, 1, 2, 1), heads=(1, 2, 4, 8), neck=64, drop_path=0.0),
         "swin_t": dict(xbound=[-50, 50, 0.5], ybound=[-50, 50, 0.5], zbound=[-10, 10, 20], dbound=[4, 45, 1], size=(128, 352), drop_path=0.0)}


def batch_of(count, height, width, cells):
    """Six cameras around the car, the same as in the C++ program."""
    rots = torch.zeros(count, 6, 3, 3)
    for n in range(6):
        s, c = math.sin(math.pi / 3 * n), math.cos(math.pi / 3 * n)
        rots[:, n] = torch.tensor([[s, 0, c], [-c, 0, s], [0, -1, 0]])
    scale = width / 1600
    intrins = torch.tensor([[1260.0, 0, 800], [0, 1260.0, 450], [0, 0, 1]]).expand(count, 6, 3, 3).contiguous()
    post_rots = torch.diag(torch.tensor([scale, scale, 1.0])).expand(count, 6, 3, 3).contiguous()
    post_trans = torch.tensor([0.0, -(0.89 * 900 * scale - height), 0.0]).expand(count, 6, 3).contiguous()
    trans = torch.tensor([1.0, 0.0, 1.5]).expand(count, 6, 3).contiguous()
    imgs = (torch.arange(count * 6 * 3 * height * width).float() * 0.37).sin().view(count, 6, 3, height, width)
    truth = ((torch.arange(count * cells[0] * cells[1]) % 37) < 2).float().view(count, 1, *cells)
    return (imgs, rots, trans, intrins, post_rots, post_trans), truth


def check(folder):
    """The peer against the fixture of the projects themselves: prints losses of five SGD steps."""
    from safetensors.torch import load_file
    model, b = LiftSplat(**SIZES["small"]), load_file(folder + "/batch.safetensors")
    missing = model.load_state_dict({k: v.float() if v.is_floating_point() else v for k, v in load_file(folder + "/weights.safetensors").items()}, strict=True)
    optimiser = torch.optim.SGD(model.parameters(), 0.02, 0.9, weight_decay=1e-4)
    for step in range(5):
        optimiser.zero_grad()
        preds = model(*(b[k] for k in ("imgs", "rots", "trans", "intrins", "post_rots", "post_trans")))
        loss = torch.nn.functional.binary_cross_entropy_with_logits(preds, b["binimgs"], pos_weight=torch.tensor([2.13]))
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimiser.step()
        print(step, loss.item(), missing)


def main(what="small", count=2, steps=3, threads=2):
    count, steps = int(count), int(steps)
    torch.set_num_threads(int(threads))
    torch.manual_seed(0)
    size = SIZES["swin_t" if what == "splat" else what]
    model = LiftSplat(**size)
    model.train()
    inputs, truth = batch_of(count, *size["size"], model.nx[:2].tolist())
    weight = torch.tensor([2.13])
    if what == "splat":
        points = model.geometry(*inputs[1:])
        d, h, w = model.frustum.shape[:3]
        logits = (torch.arange(count * 6 * (d + 64) * h * w).float() * 0.11).sin().view(count * 6, d + 64, h, w).requires_grad_(True)

        def step():
            lifted = logits[:, :d].softmax(1).unsqueeze(1) * logits[:, d:].unsqueeze(2)
            grid = model.pool(points, lifted.view(count, 6, 64, d, h, w).permute(0, 1, 3, 4, 5, 2))
            grid.sum().backward()
    else:
        def step():
            model.zero_grad()
            torch.nn.functional.binary_cross_entropy_with_logits(model(*inputs), truth, pos_weight=weight).backward()
    step()
    times = []
    for _ in range(steps):
        begin = time.perf_counter()
        step()
        times.append(time.perf_counter() - begin)
    print(json.dumps({"step_ms": 1e3 * sorted(times)[len(times) // 2]}))


if __name__ == "__main__":
    check(sys.argv[2]) if sys.argv[1:2] == ["check"] else main(*sys.argv[1:])
