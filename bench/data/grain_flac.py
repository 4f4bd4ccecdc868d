"""Grain's thread prefetch + soundfile over a NeMo manifest: float32 mono, padded batches. grain_flac.py MANIFEST THREADS BATCH SECONDS"""
import json
import os
import sys

import grain
import soundfile
import torch

import peer_clock

manifest, threads, batch, seconds = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), float(sys.argv[4])
folder = os.path.dirname(os.path.abspath(manifest))
torch.set_num_threads(1)


def decode(file):
    samples, _ = soundfile.read(file, dtype="float32")
    return torch.from_numpy(samples)


def collate(clips):
    return torch.nn.utils.rnn.pad_sequence(clips, batch_first=True), torch.tensor([len(clip) for clip in clips])


def make():
    with open(manifest) as lines:
        files = [os.path.join(folder, json.loads(line)["audio_filepath"]) for line in lines]
    return (grain.MapDataset.source(files).shuffle(seed=1).map(decode).batch(batch, batch_fn=collate)
            .to_iter_dataset(grain.ReadOptions(num_threads=threads, prefetch_buffer_size=8)))


peer_clock.run(make, lambda got: got[0].shape[0], seconds)
