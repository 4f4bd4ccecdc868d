"""The third guide's train_optimized.py as a practitioner writes it: PyTorch Lightning, DataLoader over Parquet, a monitor callback.

Trains peer_model.SequenceVae on FOLDER/train and prints one JSON line: sequences per second after the warm-up steps (data, optimiser and
monitor included; validation off), padding share, peak resident memory of the process tree, and what the monitor cost. Rows are taken in
file order, so that both programs train on the same batches; the files are written in random order.
"""
import argparse
import collections
import json
import logging
import math
import pathlib
import resource
import time
import warnings

warnings.filterwarnings("ignore")
logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)

import lightning.pytorch as pl  # noqa: E402
import pyarrow  # noqa: E402
import pyarrow.parquet  # noqa: E402
import torch  # noqa: E402

from peer_model import SequenceVae  # noqa: E402

START, END = 1, 2


class Rows(torch.utils.data.Dataset):
    def __init__(self, folder, longest):
        files = sorted(pathlib.Path(folder).glob("*.parquet"))
        lists = pyarrow.concat_tables(pyarrow.parquet.read_table(f, columns=["tokens"]) for f in files).column("tokens").combine_chunks()
        self.offsets, self.longest = lists.offsets.to_numpy(), longest
        self.values = torch.from_numpy(lists.values.to_numpy(zero_copy_only=True)).long()

    def __len__(self):
        return len(self.offsets) - 1

    def __getitem__(self, index):
        row = self.values[self.offsets[index]:self.offsets[index + 1]][:self.longest - 2]
        return torch.cat([torch.tensor([START]), row, torch.tensor([END])])


def collate_to(length):
    def collate(rows):
        tokens = torch.nn.utils.rnn.pad_sequence(rows, batch_first=True)
        if length:
            tokens = torch.nn.functional.pad(tokens, (0, length - tokens.size(1)))
        return tokens, torch.tensor([len(row) for row in rows])
    return collate


def information(mu, logvar, z):
    """He et al. 2019: E[log q(z|x)] - mean log of the aggregate, one draw per example."""
    nz = mu.size(1)
    conditional = (-0.5 * nz * math.log(2 * math.pi) - 0.5 * (1 + logvar).sum(1)).mean()
    deviation = z[:, None] - mu[None]
    density = -0.5 * (deviation**2 / logvar.exp()[None]).sum(-1) - 0.5 * (nz * math.log(2 * math.pi) + logvar.sum(1))[None]
    return (conditional - (torch.logsumexp(density, 1) - math.log(len(mu))).mean()).item()


class PosteriorMetricsMonitor(pl.Callback):
    def __init__(self, update_frequency, window_size):
        self.every, self.window = update_frequency, collections.deque(maxlen=window_size)
        self.seconds, self.looks, self.history = 0.0, 0, []

    def on_train_batch_end(self, trainer, module, outputs, batch, batch_index):
        begin = time.perf_counter()
        self.window.append([outputs[k].detach().float().clone() for k in ("mu", "logvar", "z", "reconstruction")])
        if trainer.global_step % self.every == 0 and (batch_index + 1) % trainer.accumulate_grad_batches == 0:
            mu, logvar, z, rec = (torch.cat(part) for part in zip(*self.window))
            kl = (0.5 * (mu**2 + logvar.exp() - logvar - 1)).mean(0)
            figures = {"kl": kl.sum().item(), "active_units": (mu.var(0) >= 0.01).sum().item(),
                       "mutual_information": information(mu[-256:], logvar[-256:], z[-256:]), "reconstruction": rec.mean().item()}
            figures |= {f"kl_dim_{i:02d}": value for i, value in enumerate(kl.tolist())}
            self.history.append(figures)
            self.looks += 1
        self.seconds += time.perf_counter() - begin


class Clock(pl.Callback):
    def __init__(self, warm_up):
        self.warm_up, self.first, self.last, self.sequences, self.real, self.padded = warm_up, None, None, 0, 0, 0

    def on_train_batch_end(self, trainer, module, outputs, batch, batch_index):
        self.last = time.perf_counter()
        if self.first is not None:
            self.sequences += len(batch[1])
            self.real += int(batch[1].sum())
            self.padded += batch[0].numel()
        elif trainer.global_step == self.warm_up and (batch_index + 1) % trainer.accumulate_grad_batches == 0:
            self.first = self.last


class Module(pl.LightningModule):
    def __init__(self, model, schedule_steps):
        super().__init__()
        self.model, self.schedule_steps = model, schedule_steps

    def training_step(self, batch, _):
        out = self.model(*batch, beta=min(1.0, (self.global_step + 1) / 200))
        self.log("train_loss", out["loss"])
        return out

    def configure_optimizers(self):
        optimiser = torch.optim.AdamW(self.parameters(), lr=3e-4, weight_decay=0.01)
        warm_up = torch.optim.lr_scheduler.LambdaLR(optimiser, lambda step: min(1.0, (step + 1) / 100))
        return {"optimizer": optimiser, "lr_scheduler": {"scheduler": warm_up, "interval": "step"}}


def main():
    p = argparse.ArgumentParser()
    p.add_argument("folder")
    p.add_argument("--batch_size", type=int, default=4)
    p.add_argument("--num_workers", type=int, default=8)
    p.add_argument("--gradient_accumulation_steps", type=int, default=2)
    p.add_argument("--max_sequence_length", type=int, default=1000)
    p.add_argument("--precision", default="32-true")
    p.add_argument("--padding", choices=["max", "dynamic"], default="dynamic")
    p.add_argument("--compile", action="store_true")
    p.add_argument("--update_frequency", type=int, default=200, help="0: no monitor")
    p.add_argument("--window_size", type=int, default=50)
    p.add_argument("--steps", type=int, default=45)
    p.add_argument("--warm_up", type=int, default=5)
    a = p.parse_args()
    torch.manual_seed(0)
    extra = {"persistent_workers": True} if a.num_workers else {}
    loader = torch.utils.data.DataLoader(
        Rows(a.folder, a.max_sequence_length), batch_size=a.batch_size, shuffle=False, num_workers=a.num_workers, drop_last=False,
        collate_fn=collate_to(a.max_sequence_length if a.padding == "max" else 0), **extra)
    model = SequenceVae(max_length=a.max_sequence_length)
    if a.compile:
        model = torch.compile(model, dynamic=a.padding == "dynamic")
    clock = Clock(a.warm_up)
    monitor = PosteriorMetricsMonitor(a.update_frequency, a.window_size) if a.update_frequency else None
    trainer = pl.Trainer(
        accelerator="cpu", devices=1, max_steps=a.steps, precision=a.precision, accumulate_grad_batches=a.gradient_accumulation_steps,
        gradient_clip_val=1.0, limit_val_batches=0, detect_anomaly=False, enable_model_summary=False, sync_batchnorm=False, logger=False,
        enable_checkpointing=False, enable_progress_bar=False, log_every_n_steps=50, callbacks=[clock] + ([monitor] if monitor else []))
    trainer.fit(Module(model, a.steps), loader)
    seconds = clock.last - clock.first
    steps = a.steps - a.warm_up
    figures = {"sequences_per_second": clock.sequences / seconds, "tokens_per_second": clock.real / seconds, "step_seconds": seconds / steps,
               "padding_share": 1 - clock.real / clock.padded,
               "peak_rss_bytes": 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss}
    if monitor:
        figures |= {"monitor_share": monitor.seconds / (figures["step_seconds"] * a.steps), "looks": monitor.looks,
                    "monitor_seconds": monitor.seconds}
    print(json.dumps(figures))


if __name__ == "__main__":
    main()
