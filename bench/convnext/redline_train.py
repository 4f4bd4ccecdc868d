"""redline_train.py REDLINE RECIPE STEPS WARM_UP [override ...]: runs `redline train` on one of the image recipes and prints the figures of its record after
the warm-up steps as one JSON line. No validation, no checkpoints, no moving average: what timm_train.py does."""
import json
import pathlib
import subprocess
import sys
import tempfile

import numpy

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "bench/vae"))
from redline_train import PHASES, ROW  # noqa: E402

STAGES = "read decode transform collate".split()


def main(redline, recipe, steps, warm_up, *overrides):
    steps, warm_up = int(steps), int(warm_up)
    with tempfile.TemporaryDirectory() as work:
        command = [redline, "-q", "train", ROOT / "recipes" / recipe, "~model.validation_ds", f"trainer.max_steps={steps}", f"exp_manager.exp_dir={work}",
                   "exp_manager.create_checkpoint_callback=false", "exp_manager.create_tensorboard_logger=false", "exp_manager.ema.enable=false",
                   "model.monitor.separation_every_n_epochs=0", "model.monitor.pictures_every_n_epochs=0", *overrides]
        done = subprocess.run([str(word) for word in command], capture_output=True, text=True)
        if done.returncode != 0:
            sys.exit(f"{' '.join(map(str, command))} failed with {done.returncode}:\n{done.stderr[-2000:]}")
        [record] = pathlib.Path(work).rglob("steps.bin")
        data = record.read_bytes()
    rows = numpy.frombuffer(data[64:64 + (len(data) - 64) // ROW.itemsize * ROW.itemsize], ROW)
    timed = rows[rows["step"] > warm_up]
    seconds = (timed["begin"][-1] + timed["wall"][-1] - timed["begin"][0]) * 1e-9
    figures = {"pictures_per_second": float(timed["samples"].sum() / seconds), "step_seconds": seconds / len(timed),
               "peak_tensor_mib": float(rows["peak"].max()) / 2**20, "peak_mib": float(rows["rss"].max()) / 2**20}
    figures |= {f"{name}_share": float(timed["phase"][:, PHASES.index(name)].sum() * 1e-9 / seconds) for name in ("wait", "forward", "backward", "optimiser")}
    figures |= {f"{name}_ms_of_workers": float(timed["stage"][:, i].sum() * 1e-6 / len(timed)) for i, name in enumerate(STAGES)}
    print(json.dumps(figures))


if __name__ == "__main__":
    main(*sys.argv[1:])
