"""PyTorch's DistributedDataParallel on Gloo, as the peer of redline's ranks: a ConvNeXt with timm's layers in plain PyTorch, pictures ready in memory (no loading
at all), one thread a rank, channels last, the fused AdamW, gradients as views of the buckets, a static graph. WORLD_SIZE 1: the same loop without DDP.
ddp_peer.py BATCH_OF_ALL STEPS WARMUP: prints samples per second as JSON on rank 0."""
import json
import os
import sys
import time

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn

DIMS, DEPTHS, CLASSES, SIZE = (64, 128, 256, 384), (1, 1, 2, 1), 6, 64


class Block(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.conv_dw = nn.Conv2d(dim, dim, 7, padding=3, groups=dim)
        self.norm = nn.LayerNorm(dim, eps=1e-6)
        self.fc1, self.fc2 = nn.Linear(dim, 4 * dim), nn.Linear(4 * dim, dim)
        self.gamma = nn.Parameter(torch.full((dim,), 0.1))

    def forward(self, x):
        y = self.norm(self.conv_dw(x).permute(0, 2, 3, 1))
        y = self.fc2(F.gelu(self.fc1(y))) * self.gamma
        return x + y.permute(0, 3, 1, 2)


class ChannelNorm(nn.LayerNorm):
    def forward(self, x):
        return super().forward(x.permute(0, 2, 3, 1)).permute(0, 3, 1, 2)


def model():
    layers = [nn.Conv2d(3, DIMS[0], 4, 4), ChannelNorm(DIMS[0], eps=1e-6)]
    for i, (dim, depth) in enumerate(zip(DIMS, DEPTHS)):
        if i > 0:
            layers += [ChannelNorm(DIMS[i - 1], eps=1e-6), nn.Conv2d(DIMS[i - 1], dim, 2, 2)]
        layers += [Block(dim) for _ in range(depth)]
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.LayerNorm(DIMS[-1], eps=1e-6), nn.Linear(DIMS[-1], CLASSES))


def main():
    batch, steps, warmup = map(int, sys.argv[1:4])
    rank, world = int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1))
    torch.set_num_threads(1)
    torch.manual_seed(0)
    net = model().to(memory_format=torch.channels_last)
    if world > 1:
        dist.init_process_group("gloo")
        net = nn.parallel.DistributedDataParallel(net, gradient_as_bucket_view=True, static_graph=True)
    optimiser = torch.optim.AdamW(net.parameters(), lr=1e-4, fused=True)
    images = torch.randn(batch // world, 3, SIZE, SIZE).to(memory_format=torch.channels_last)
    labels = torch.randint(0, CLASSES, (batch // world,))
    for i in range(warmup + steps):
        if i == warmup:
            if world > 1:
                dist.barrier()
            began = time.perf_counter()
        optimiser.zero_grad(set_to_none=True)
        F.cross_entropy(net(images), labels).backward()
        optimiser.step()
    if world > 1:
        dist.barrier()
    if rank == 0:
        print(json.dumps({"samples_per_second": batch * steps / (time.perf_counter() - began),
                          "parameters": sum(p.numel() for p in net.parameters())}))
    if world > 1:
        dist.destroy_process_group()


main()
