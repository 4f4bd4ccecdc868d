"""webdataset over tars of FLAC clips. webdataset_flac.py FOLDER WORKERS BATCH SECONDS"""
import glob
import io
import sys

import soundfile
import torch
import webdataset

import peer_clock

folder, workers, batch, seconds = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), float(sys.argv[4])


def decode(sample):
    samples, _ = soundfile.read(io.BytesIO(sample["flac"]), dtype="float32")
    return torch.from_numpy(samples)


def collate(clips):
    return torch.nn.utils.rnn.pad_sequence(clips, batch_first=True), torch.tensor([len(clip) for clip in clips])


def make():
    tars = sorted(glob.glob(folder + "/*.tar"))
    data = webdataset.WebDataset(tars, shardshuffle=len(tars)).shuffle(1000).map(decode).batched(batch, collation_fn=collate)
    extra = {"persistent_workers": True} if workers else {}
    return webdataset.WebLoader(data, batch_size=None, num_workers=workers, **extra)


peer_clock.run(make, lambda got: got[0].shape[0], seconds)
