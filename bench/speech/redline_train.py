"""One `redline train` of the small NEST recipe on given manifests, as figures: rates over the second epoch of the run, phases, memory.

    redline_train.py REDLINE MANIFEST NOISE CLIPS [key=value ...]

CLIPS is the number of clips in the manifest: the run makes two passes and the first warms up.
"""
import json
import pathlib
import resource
import shutil
import struct
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
PHASES = ["wait", "copy", "forward", "backward", "reduce", "optimiser", "log", "monitor", "validate", "checkpoint", "other"]
HEADER, ROW = 64, 232


def rows(path):
    """steps.bin as docs/formats.md describes it: the fields used here."""
    data = path.read_bytes()[HEADER:]
    for at in range(0, len(data) // ROW * ROW, ROW):
        row = data[at:at + ROW]
        step, epoch, _, wall, *phases = struct.unpack_from("<15q", row, 0)
        samples = struct.unpack_from("<i", row, 152)[0]
        items, padded, live, peak, _ = struct.unpack_from("<5q", row, 160)
        yield {"step": step, "epoch": epoch, "wall": wall, "phases": phases, "samples": samples, "items": items, "padded": padded, "peak": peak,
               "loss": struct.unpack_from("<d", row, 200)[0]}


def main():
    redline, manifest, noise, clips, *overrides = sys.argv[1:]
    given = dict(word.split("=", 1) for word in overrides)
    batch = int(given.get("model.train_ds.batch_size", 8)) * int(given.get("trainer.accumulate_grad_batches", 1))
    per_epoch = int(clips) // batch
    folder = pathlib.Path(tempfile.mkdtemp(prefix="redline-speech-"))
    try:
        command = [redline, "-q", "train", str(ROOT / "recipes/nest_fast-conformer_small.yaml"), "model.train_ds.synth=null", "model.validation_ds.synth=null",
                   f"model.train_ds.manifest_filepath={manifest}", f"model.train_ds.noise_manifest={noise}",
                   f"model.validation_ds.manifest_filepath={manifest}", "trainer.limit_val_batches=0", "trainer.logger=false",
                   "exp_manager.create_checkpoint_callback=false", "exp_manager.create_tensorboard_logger=false",
                   f"trainer.max_steps={2 * per_epoch}", *overrides, "--run-dir", str(folder / "run")]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode != 0:
            sys.exit(f"{' '.join(command)} ended with {done.returncode}:\n{done.stderr[-2000:]}")
        steps = [row for row in rows(folder / "run/steps.bin") if row["step"] > per_epoch]
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    seconds = sum(row["wall"] for row in steps) * 1e-9
    samples = sum(row["samples"] for row in steps)
    figures = {"samples_per_second": samples / seconds, "audio_seconds_per_second": sum(row["items"] for row in steps) / 16000.0 / seconds,
               "samples": samples, "seconds": seconds, "padding_share": 1.0 - sum(r["items"] for r in steps) / max(1, sum(r["padded"] for r in steps)),
               "loss": steps[-1]["loss"], "peak_mib": resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024,
               "peak_tensor_mib": max(row["peak"] for row in steps) / 2**20}
    for index, name in enumerate(PHASES):
        share = sum(row["phases"][index] for row in steps) * 1e-9 / seconds
        if share >= 0.001:
            figures[f"share_{name}"] = round(share, 4)
    print(json.dumps(figures))


main()
