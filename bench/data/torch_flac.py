"""PyTorch DataLoader + soundfile over a NeMo manifest: float32 mono, padded batches. torch_flac.py MANIFEST WORKERS BATCH SECONDS"""
import json
import os
import sys

import soundfile
import torch

import peer_clock

manifest, workers, batch, seconds = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), float(sys.argv[4])


class Clips(torch.utils.data.Dataset):
    def __init__(self):
        folder = os.path.dirname(os.path.abspath(manifest))
        with open(manifest) as lines:
            self.files = [os.path.join(folder, json.loads(line)["audio_filepath"]) for line in lines]

    def __len__(self):
        return len(self.files)

    def __getitem__(self, index):
        samples, _ = soundfile.read(self.files[index], dtype="float32")
        return torch.from_numpy(samples)


def collate(clips):
    return torch.nn.utils.rnn.pad_sequence(clips, batch_first=True), torch.tensor([len(clip) for clip in clips])


def make():
    extra = {"persistent_workers": True, "prefetch_factor": 4} if workers else {}
    return torch.utils.data.DataLoader(Clips(), batch_size=batch, shuffle=True, num_workers=workers, collate_fn=collate, **extra)


peer_clock.run(make, lambda got: got[0].shape[0], seconds)
