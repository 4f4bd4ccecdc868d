"""PyTorch DataLoader + Pillow: JPEG to 224 x 224, float32 normalised. torch_jpeg.py FOLDER WORKERS BATCH SECONDS"""
import pathlib
import sys

import numpy
import torch
from PIL import Image

import peer_clock

folder, workers, batch, seconds = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), float(sys.argv[4])
MEAN = numpy.array([0.485, 0.456, 0.406], dtype=numpy.float32)
STD = numpy.array([0.229, 0.224, 0.225], dtype=numpy.float32)


class Pictures(torch.utils.data.Dataset):
    def __init__(self):
        root = pathlib.Path(folder)
        self.classes = sorted(entry.name for entry in root.iterdir() if entry.is_dir())
        self.files = [(path, label) for label, name in enumerate(self.classes) for path in sorted((root / name).iterdir())]

    def __len__(self):
        return len(self.files)

    def __getitem__(self, index):
        path, label = self.files[index]
        with Image.open(path) as image:
            small = image.convert("RGB").resize((224, 224), Image.Resampling.BICUBIC)
        pixels = (numpy.asarray(small, dtype=numpy.float32) / 255.0 - MEAN) / STD
        return torch.from_numpy(numpy.ascontiguousarray(pixels.transpose(2, 0, 1))), label


def make():
    extra = {"persistent_workers": True, "prefetch_factor": 4} if workers else {}
    return torch.utils.data.DataLoader(Pictures(), batch_size=batch, shuffle=True, num_workers=workers, **extra)


peer_clock.run(make, lambda got: got[0].shape[0], seconds)
