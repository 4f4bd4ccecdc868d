#!/usr/bin/env python3
"""timm_predict.py REDLINE FOLDER: does `redline predict` give timm's embeddings? ConvNeXt-T under timm's names (random weights, so that nothing is downloaded),
pictures of several sizes as JPEG and PNG, timm's evaluation transform. Runs in the peers' environment; exit code 1 above 1e-4 of the largest value."""
import pathlib
import subprocess
import sys

import numpy
import timm_import  # noqa: F401
import timm
import torch
from PIL import Image
from safetensors.numpy import load_file
from safetensors.torch import save_file
from timm.data import create_transform, resolve_data_config

ROOT = pathlib.Path(__file__).resolve().parents[2]
SIZES = [(320, 240, "jpg"), (224, 500, "jpg"), (601, 402, "png"), (256, 256, "jpg"), (97, 150, "png")]
BAR = 1e-4


def pictures(folder):
    rng, paths = numpy.random.default_rng(3), []
    for kind in range(2):
        (folder / f"class{kind}").mkdir(parents=True, exist_ok=True)
        for i, (width, height, ending) in enumerate(SIZES):
            y, x = numpy.mgrid[0:height, 0:width]
            waves = [127 + 120 * numpy.sin(x / (5 + 7 * rng.random()) + c) * numpy.cos(y / (9 + 4 * rng.random())) for c in range(3)]
            pixels = (numpy.stack(waves, -1) + rng.normal(0, 8, (height, width, 3))).clip(0, 255).astype("uint8")
            paths.append(folder / f"class{kind}" / f"p{i}.{ending}")
            Image.fromarray(pixels).save(paths[-1], **({"quality": 92} if ending == "jpg" else {}))
    return paths


def main(redline, folder):
    folder = pathlib.Path(folder).resolve()
    paths = pictures(folder / "pictures")
    torch.manual_seed(5)
    model = timm.create_model("convnext_tiny", pretrained=False).eval()
    with torch.no_grad():
        for name, value in model.named_parameters():
            if name.endswith("gamma"):  # the initial 1e-6 would hide every block
                value.normal_(0.3, 0.1)
    save_file({name: value.contiguous() for name, value in model.state_dict().items()}, folder / "weights.safetensors")
    config = resolve_data_config({}, model=model)
    transform = create_transform(**{key: config[key] for key in ("input_size", "interpolation", "mean", "std", "crop_pct", "crop_mode")}, is_training=False)
    with torch.no_grad():
        wanted = torch.stack([model.forward_head(model.forward_features(transform(Image.open(path).convert("RGB"))[None]), pre_logits=True)[0] for path in paths]).numpy()

    # A run of one step, for its configuration; the weights are timm's.
    words = ["model.depths=[3,3,9,3]", "model.dims=[96,192,384,768]", "model.num_classes=1000", "model.image_size=224", f"model.validation_ds.crop_pct={config['crop_pct']}",
             f"model.train_ds.path={folder / 'pictures'}", f"model.validation_ds.path={folder / 'pictures'}", "model.train_ds.batch_size=2", "model.train_ds.num_workers=0",
             "model.validation_ds.num_workers=0", "trainer.max_steps=1", "trainer.val_check_interval=1000", "exp_manager.ema.enable=false"]
    subprocess.run([redline, "-q", "train", ROOT / "recipes/convnext.yaml", *words, "--run-dir", folder / "run", "--new-run"], check=True)
    worst = 0.0
    for fused in ("true", "false"):
        subprocess.run([redline, "-q", "predict", folder / "run", folder / "pictures", "--checkpoint", folder / "weights.safetensors", "--out", folder / "out.safetensors",
                        f"model.fused_kernels={fused}"], check=True, stdout=subprocess.DEVNULL)
        found = load_file(folder / "out.safetensors")["embedding"]
        difference = float(numpy.abs(found - wanted).max() / numpy.abs(wanted).max())
        print(f"fused_kernels {fused}: {difference:.1e} of the largest value, {len(paths)} pictures")
        worst = max(worst, difference)
    return 0 if worst <= BAR else 1


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
