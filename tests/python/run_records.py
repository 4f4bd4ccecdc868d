"""Writes run records (docs/formats.md) with chosen times, for tests of what reads them."""
import pathlib
import struct

import numpy

PHASES = ["wait", "copy", "forward", "backward", "reduce", "optimiser", "log", "monitor", "validate", "checkpoint", "other"]
STAGES = ["read", "decode", "transform", "collate"]
ROW = numpy.dtype([("step", "<i8"), ("epoch", "<i8"), ("begin_ns", "<i8"), ("wall_ns", "<i8"), ("phase_ns", "<i8", 11), ("stage_ns", "<i8", 4),
                   ("samples", "<i4"), ("micro_batches", "<i4"), ("items", "<i8"), ("padded_items", "<i8"), ("live_bytes", "<i8"), ("peak_bytes", "<i8"),
                   ("rss_bytes", "<i8"), ("loss", "<f8"), ("learning_rate", "<f8"), ("grad_norm", "<f8"), ("flags", "<u4"), ("crc", "<u4")])


def _table():
    table = numpy.arange(256, dtype=numpy.uint32)
    for _ in range(8):
        table = numpy.where(table & 1, (table >> 1) ^ numpy.uint32(0x82F63B78), table >> 1)
    return table


TABLE = _table()


def crc32c(rows):
    """Of each row of a 2-d array of bytes."""
    crc = numpy.full(rows.shape[0], 0xFFFFFFFF, numpy.uint32)
    for column in range(rows.shape[1]):
        crc = TABLE[(crc ^ rows[:, column]) & 0xFF] ^ (crc >> 8)
    return crc ^ numpy.uint32(0xFFFFFFFF)


def header(version=1):
    head = b"RLSTEPS\n" + struct.pack("<IIII", version, ROW.itemsize, 11, 4) + bytes(36)
    return head + struct.pack("<I", int(crc32c(numpy.frombuffer(head, numpy.uint8)[None])[0]))


def make_run(folder, milliseconds, steps=200, noise=0.02, seed=1, samples=8, task="sequence_vae", stages=None, version=1):
    """A run whose steps take `milliseconds` ({phase: ms}, or a function of the step's index) with relative noise."""
    folder = pathlib.Path(folder)
    folder.mkdir(parents=True)
    draw = numpy.random.default_rng(seed)
    rows = numpy.zeros(steps, ROW)
    of_step = milliseconds if callable(milliseconds) else (lambda i: milliseconds)
    for i in range(steps):
        for phase, ms in of_step(i).items():
            rows["phase_ns"][i, PHASES.index(phase)] = 1e6 * ms * max(0.1, 1 + noise * draw.standard_normal())
    for stage, ms in (stages or {"decode": 1.0}).items():
        rows["stage_ns"][:, STAGES.index(stage)] = 1e6 * ms
    rows["step"] = numpy.arange(1, steps + 1)
    rows["wall_ns"] = rows["phase_ns"].sum(axis=1)
    rows["begin_ns"] = numpy.concatenate([[0], numpy.cumsum(rows["wall_ns"])[:-1]])
    rows["samples"], rows["micro_batches"] = samples, 1
    rows["items"] = draw.integers(600, 1000, steps)
    rows["padded_items"] = rows["items"] + draw.integers(0, 300, steps)
    rows["live_bytes"], rows["peak_bytes"], rows["rss_bytes"] = 1 << 26, (1 << 27) + 4096 * (rows["step"] % 50), 1 << 29
    rows["loss"] = 1 + 4 / numpy.sqrt(rows["step"]) + 0.05 * draw.standard_normal(steps)
    rows["learning_rate"], rows["grad_norm"] = 1e-3, 1.0
    rows["crc"] = crc32c(numpy.frombuffer(rows.tobytes(), numpy.uint8).reshape(steps, ROW.itemsize)[:, :228])
    (folder / "steps.bin").write_bytes(header(version) + rows.tobytes())
    (folder / "config.resolved.yaml").write_text(f"task: {task}  # command line\n")
    (folder / "events.jsonl").write_text('{"format":"redline.events","version":1}\n')
    points = "".join(f'{{"step":{step},"name":"val_loss","value":{1 + 4 / step ** 0.5}}}\n' for step in range(10, steps + 1, max(1, steps // 20)))
    (folder / "metrics.jsonl").write_text('{"format":"redline.metrics","version":1}\n' + points)
    return folder


def _ratio(ratio, low, high):
    return {"ratio": ratio, "interval": {"low": low, "high": high}, "low": low, "high": high, "blocks": 6}


def _entry(field, old, new, ratio=None, predicted=None, verdict="faster", claim="", effect="nothing", in_best=False, reason=""):
    return {"field": field, "from": old, "to": new, "effect": effect, "claim": claim, "predicted": predicted, "predicted_interval": None, "add_one_in": ratio, "leave_one_out": None, "measured": ratio,
            "interaction": None, "prediction_error_points": None, "verdict": verdict, "reason": reason, "in_best": in_best}


def make_card():
    """A tune card with every kind of line: what a tuned run keeps as tune_card.json."""
    losses = [1 + 4 / step ** 0.5 for step in range(1, 21)]
    entries = [
        _entry("model.train_ds.num_buckets", "1", "8", _ratio(1.31, 1.27, 1.36), 1.28, claim="+20-40 %", effect="order", in_best=True),
        _entry("model.train_ds.num_workers", "8", "1", _ratio(1.06, 1.02, 1.09), 1.04, in_best=True),
        _entry("trainer.log_every_n_steps", "10", "50", _ratio(1.001, 0.99, 1.012), 1.002, verdict="no effect"),
        _entry("trainer.precision", "32-true", "bf16-mixed", _ratio(0.41, 0.39, 0.44), 0.3, verdict="slower here", claim="+50-100 %", effect="numerics"),
        _entry("model.train_ds.pin_memory", "false", "true", verdict="not measurable here", claim="+5-10 %", reason="there is no GPU"),
    ]
    ledger = {"format": "redline.ledger", "version": 2, "objective": "samples/s of the whole run", "best": _ratio(1.39, 1.33, 1.44),
              "baseline_samples_per_second": 124.0, "best_samples_per_second": 172.0, "tuning_seconds": 95.0, "bound_left": 1.02,
              "median_prediction_error_points": 3.0, "entries": entries}
    certificate = {"format": "redline.certificate", "version": 2, "kind": "not worse", "accepted": True,
                   "reason": "Not worse: 5 pairs of runs.", "reference_hash": "a1", "candidate_hash": "b2",
                   "effects": ["order"], "seed": 1, "steps": 20, "samples": 160, "consent": False, "first_different_step": 1,
                   "reference_losses": losses, "candidate_losses": [loss * 1.01 for loss in losses],
                   "checks": [{"name": "loss at 160 samples", "difference": 0.01, "tolerance": 0.03, "tolerance_source": "the margin", "passed": True}]}
    return {"format": "redline.tune_card", "version": 2, "created": "2026-01-02T03:04:05Z",
            "fingerprint": {key: "x" for key in ("model", "data", "machine", "versions", "request")},
            "values": [{"field": "model.train_ds.num_buckets", "value": "8"}], "promised_ratio": {"low": 1.33, "high": 1.44},
            "peak_tensor_bytes": 1 << 27, "notes": ["A note."], "ledger": ledger, "certificate": certificate,
            "break_even": {"tuning_seconds": 95.0, "compile_seconds": 0.0, "baseline_samples_per_second": 124.0, "best_samples_per_second": 172.0,
                           "samples_of_run": 1e6, "break_even_samples": 42000.0}}


def read_steps(path):
    """The rows of a record, whole ones only."""
    data = pathlib.Path(path).read_bytes()
    return numpy.frombuffer(data[64:64 + (len(data) - 64) // ROW.itemsize * ROW.itemsize], ROW)
