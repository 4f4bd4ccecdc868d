"""PyTorch DataLoader over Parquet integer sequences with zero-copy rows. torch_parquet.py FOLDER COLUMN WORKERS BATCH SECONDS"""
import sys

import pyarrow.parquet
import torch

import peer_clock

folder, column, workers, batch, seconds = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4]), float(sys.argv[5])


class Rows(torch.utils.data.Dataset):
    def __init__(self):
        lists = pyarrow.parquet.read_table(folder, columns=[column]).column(column).combine_chunks()
        self.offsets = lists.offsets.to_numpy()
        self.values = torch.from_numpy(lists.values.to_numpy(zero_copy_only=True))

    def __len__(self):
        return len(self.offsets) - 1

    def __getitem__(self, index):
        return self.values[self.offsets[index]:self.offsets[index + 1]]


def collate(rows):
    return torch.nn.utils.rnn.pad_sequence(rows, batch_first=True), torch.tensor([len(row) for row in rows])


def make():
    extra = {"persistent_workers": True, "prefetch_factor": 8} if workers else {}
    return torch.utils.data.DataLoader(Rows(), batch_size=batch, shuffle=True, num_workers=workers, collate_fn=collate, **extra)


peer_clock.run(make, lambda got: got[0].shape[0], seconds)
