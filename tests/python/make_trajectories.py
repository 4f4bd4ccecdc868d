"""Records what PyTorch's optimisers, clipping and averaging, and NeMo's schedules do, for the tests of src/train/optim.

Run once per change of the recorded set, with the peers' environment (torch 2.13, NeMo 3.0):
    .venv-peers/bin/python tests/python/make_trajectories.py tests/fixtures/trajectories
"""
import json
import sys
from pathlib import Path

import torch
from safetensors.torch import save_file

STEPS = 12
SHAPES = [(7, 5), (5,), (33,)]


def start():
    generator = torch.Generator().manual_seed(1)
    return [torch.randn(shape, generator=generator) for shape in SHAPES]


def gradients():
    generator = torch.Generator().manual_seed(2)
    return [[torch.randn(shape, generator=generator) * 3 ** (step % 3) for shape in SHAPES] for step in range(STEPS)]


def run(make, clip=None, ema_decay=None):
    params = [torch.nn.Parameter(p.clone()) for p in start()]
    optimizer = make(params)
    ema = [p.detach().clone() for p in params]
    out = {}
    for step, grads in enumerate(gradients()):
        for p, g in zip(params, grads):
            p.grad = g.clone()
        if clip:
            torch.nn.utils.clip_grad_norm_(params, clip)
        optimizer.step()
        if ema_decay:
            for average, p in zip(ema, params):
                average.mul_(ema_decay).add_(p.detach(), alpha=1 - ema_decay)
        for i, p in enumerate(params):
            out[f"step{step}.p{i}"] = p.detach().clone()
    if ema_decay:
        for i, average in enumerate(ema):
            out[f"ema.p{i}"] = average
    return out


CASES = {
    "adamw": dict(make=lambda ps: torch.optim.AdamW(ps, lr=0.01, betas=(0.9, 0.98), weight_decay=0.05)),
    "adamw_amsgrad": dict(make=lambda ps: torch.optim.AdamW(ps, lr=0.01, weight_decay=0.01, amsgrad=True)),
    "adam": dict(make=lambda ps: torch.optim.Adam(ps, lr=0.02, weight_decay=0.1, eps=1e-6)),
    "sgd": dict(make=lambda ps: torch.optim.SGD(ps, lr=0.1)),
    "sgd_momentum": dict(make=lambda ps: torch.optim.SGD(ps, lr=0.05, momentum=0.9, dampening=0.1, weight_decay=0.01)),
    "sgd_nesterov": dict(make=lambda ps: torch.optim.SGD(ps, lr=0.05, momentum=0.9, nesterov=True)),
    "adamw_clipped": dict(make=lambda ps: torch.optim.AdamW(ps, lr=0.01, weight_decay=0.05), clip=5.0),
    "sgd_clipped_ema": dict(make=lambda ps: torch.optim.SGD(ps, lr=0.1), clip=2.0, ema_decay=0.9),
}


def optimizers(folder):
    tensors = {f"start.p{i}": p for i, p in enumerate(start())}
    for step, grads in enumerate(gradients()):
        for i, g in enumerate(grads):
            tensors[f"grad{step}.p{i}"] = g
    for name, case in CASES.items():
        tensors.update({f"{name}.{key}": value for key, value in run(**case).items()})
    save_file({k: v.contiguous() for k, v in tensors.items()}, folder / "optimizers.safetensors")


def schedules(folder):
    from nemo.core.optim.lr_scheduler import CosineAnnealing, NoamAnnealing, WarmupPolicy

    def record(label, name, lr, steps, scheduler, **settings):
        optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=lr)
        made = scheduler(optimizer, **settings)
        values = []
        for _ in range(steps):
            values.append(optimizer.param_groups[0]["lr"])
            optimizer.step()
            made.step()
        entry = {"label": label, "name": name, "lr": lr, "values": values, "min_lr": settings.get("min_lr", 0.0),
                 "warmup_steps": settings.get("warmup_steps", 0), "max_steps": settings.get("max_steps", 0)}
        for key in ("d_model", "constant_steps"):
            if key in settings:
                entry[key] = settings[key]
        return entry

    entries = [
        record("noam", "NoamAnnealing", 5.0, 60, NoamAnnealing, d_model=176, warmup_steps=20, min_lr=1e-3),
        record("noam without warm-up", "NoamAnnealing", 2.0, 30, NoamAnnealing, d_model=64, warmup_steps=0, min_lr=0.0),
        record("cosine", "CosineAnnealing", 0.1, 60, CosineAnnealing, warmup_steps=10, max_steps=50, min_lr=0.001),
        record("cosine, no warm-up", "CosineAnnealing", 0.1, 40, CosineAnnealing, warmup_steps=0, max_steps=30, min_lr=0.0),
        record("cosine with a constant end", "CosineAnnealing", 0.1, 60, CosineAnnealing, warmup_steps=10, max_steps=50,
               constant_steps=8, min_lr=0.001),
        record("warm-up, then constant", "WarmupPolicy", 0.1, 30, WarmupPolicy, warmup_steps=10),
    ]
    (folder / "schedules.json").write_text(json.dumps(entries, indent=1))


if __name__ == "__main__":
    target = Path(sys.argv[1])
    target.mkdir(parents=True, exist_ok=True)
    optimizers(target)
    schedules(target)
