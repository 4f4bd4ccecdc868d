"""SPDL's thread pipeline + soundfile over a NeMo manifest: float32 mono, padded batches. spdl_flac.py MANIFEST THREADS BATCH SECONDS"""
import json
import os
import random
import sys

import soundfile
import torch
from spdl.pipeline import PipelineBuilder

import peer_clock

manifest, threads, batch, seconds = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), float(sys.argv[4])
folder = os.path.dirname(os.path.abspath(manifest))
torch.set_num_threads(1)


def names():
    with open(manifest) as lines:
        files = [os.path.join(folder, json.loads(line)["audio_filepath"]) for line in lines]
    random.shuffle(files)
    return files


def decode(file):
    samples, _ = soundfile.read(file, dtype="float32")
    return torch.from_numpy(samples)


def collate(clips):
    return torch.nn.utils.rnn.pad_sequence(clips, batch_first=True), torch.tensor([len(clip) for clip in clips])


class Loader:
    def __iter__(self):
        pipeline = (PipelineBuilder().add_source(names()).pipe(decode, concurrency=threads, output_order="input").aggregate(batch)
                    .pipe(collate).add_sink(8).build(num_threads=threads))
        with pipeline.auto_stop():
            yield from pipeline


peer_clock.run(Loader, lambda got: got[0].shape[0], seconds)
