"""timm's ConvNeXt trained from JPEG files in a plain PyTorch loop: DataLoader with Pillow and torchvision's transforms (RandomResizedCrop, flip,
normalised), forward, backward, AdamW. The peer of redline_train.py; run inside the peers' environment.

Serves rounds on stdin/stdout: a line "N" trains until what the workers had ready is used up, then N more steps, and answers with the pictures per
second of those. Between rounds the workers' queues are full and they sleep, so they take nothing from whoever is measured in the meantime.
"""
import argparse
import json
import os
import pathlib
import resource
import sys
import time
import warnings

warnings.filterwarnings("ignore")
real_stdout = os.dup(1)
os.dup2(2, 1)

import timm_import  # noqa: E402, F401
import torch  # noqa: E402
from PIL import Image  # noqa: E402
from timm.models.convnext import ConvNeXt  # noqa: E402
from torchvision import transforms  # noqa: E402


class Pictures(torch.utils.data.Dataset):
    def __init__(self, folder, side):
        root = pathlib.Path(folder)
        classes = sorted(entry.name for entry in root.iterdir() if entry.is_dir())
        self.files = [(path, label) for label, name in enumerate(classes) for path in sorted((root / name).iterdir())]
        self.transform = transforms.Compose([
            transforms.RandomResizedCrop(side, interpolation=transforms.InterpolationMode.BICUBIC), transforms.RandomHorizontalFlip(), transforms.ToTensor(),
            transforms.Normalize((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))])

    def __len__(self):
        return len(self.files)

    def __getitem__(self, index):
        path, label = self.files[index]
        with Image.open(path) as image:
            return self.transform(image.convert("RGB")), label


def forever(loader):
    while True:
        yield from loader


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("folder")
    parser.add_argument("--mode", choices=["eager", "channels_last", "compile"], default="eager")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--side", type=int, default=64)
    parser.add_argument("--threads", type=int, default=2)
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    torch.manual_seed(1)
    model = ConvNeXt(num_classes=10, dims=[64, 128, 256, 512], depths=[4, 4, 4, 4])
    model.train()
    if args.mode == "channels_last":
        model = model.to(memory_format=torch.channels_last)
    forward = torch.compile(model) if args.mode == "compile" else model
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=0.05, fused=True if args.mode != "eager" else None)
    ahead = {"persistent_workers": True, "prefetch_factor": 2} if args.workers else {}
    loader = torch.utils.data.DataLoader(Pictures(args.folder, args.side), batch_size=args.batch, shuffle=True, drop_last=True, num_workers=args.workers, **ahead)
    batches = forever(loader)

    def step():
        images, labels = next(batches)
        if args.mode == "channels_last":
            images = images.to(memory_format=torch.channels_last)
        loss = torch.nn.functional.cross_entropy(forward(images), labels)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return float(loss.detach())

    answer = os.fdopen(real_stdout, "w", buffering=1)
    print(json.dumps({"ready": True}), file=answer)
    for line in sys.stdin:
        for _ in range(2 * args.workers + 1):
            loss = step()
        begin = time.perf_counter()
        for _ in range(int(line)):
            loss = step()
        seconds = time.perf_counter() - begin
        print(json.dumps({"pictures_per_second": int(line) * args.batch / seconds, "step_seconds": seconds / int(line), "loss": loss,
                          "peak_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024, "base_mib": 0.0}), file=answer)


if __name__ == "__main__":
    main()
