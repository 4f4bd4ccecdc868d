"""redline -> safetensors -> NeMo's load_state_dict(strict=True) -> NeMo's loss; and NeMo's .nemo -> `redline convert nemo` -> the same tensors.

    nemo_round_trip.py REDLINE MANIFEST FOLDER

Trains the fixture's model for some steps with redline, so that every tensor has moved. Run inside the peers' environment.
"""
import json
import logging
import pathlib
import shutil
import subprocess
import sys

import nemo_step  # moves stdout away from NeMo's prints
import torch
import yaml
from safetensors.torch import load_file

FIXTURE = pathlib.Path(__file__).resolve().parent.parent.parent / "tests/fixtures/nest"


def run(*words):
    done = subprocess.run([str(word) for word in words], capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"{' '.join(map(str, words))} ended with {done.returncode}:\n{done.stderr[-2000:]}")


def nemo_model(config, weights):
    logging.disable(logging.CRITICAL)
    from nemo.collections.asr.models.ssl_models import EncDecDenoiseMaskedTokenPredModel
    from omegaconf import OmegaConf

    model = EncDecDenoiseMaskedTokenPredModel(cfg=OmegaConf.create(config), trainer=None)
    model.load_state_dict(weights, strict=True)
    return model.train()


def nemo_loss(model, batch):
    mask = batch["mask"]
    model.mask_processor.forward = lambda input_feats, input_lengths: (
        torch.where(mask > 0, model.mask_processor.mask_embedding.view(1, -1, 1), input_feats), mask)
    log_probs, encoded_len, masks, tokens = model.forward(
        input_signal=batch["audio"].clone(), input_signal_length=batch["audio_lengths"], noisy_input_signal=batch["noisy_audio"].clone(),
        noisy_input_signal_length=batch["noisy_audio_lengths"], apply_mask=True)
    return model.loss(masks=masks, decoder_outputs=log_probs, targets=tokens, decoder_lengths=encoded_len).item()


def main():
    redline, manifest, folder = sys.argv[1:]
    folder = pathlib.Path(folder)
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    recipe, trained, probe = FIXTURE / "config.yaml", folder / "trained.safetensors", folder / "probe.safetensors"
    run(redline, "-q", "train", recipe, f"model.train_ds.manifest_filepath={manifest}", "model.train_ds.batch_size=4", "model.train_ds.num_workers=0",
        "model.optim.name=adamw", "model.optim.lr=1e-3", "trainer.max_steps=5", "--run-dir", folder / "run")
    run(redline, "convert", folder / "run", trained)
    run(redline, "probe", recipe, "--weights", trained, "--batch", FIXTURE / "batch.safetensors", "--steps", 1, "--out", probe)
    ours = load_file(probe)["losses"][0].item()
    weights, start = load_file(trained), load_file(FIXTURE / "weights.safetensors")
    config = yaml.safe_load(recipe.read_text())["model"]
    model = nemo_model(config, weights)
    theirs = nemo_loss(model, load_file(FIXTURE / "batch.safetensors"))
    model.load_state_dict(weights, strict=True)  # the forward moved the running statistics
    model.save_to(str(folder / "theirs.nemo"))
    run(redline, "convert", "nemo", folder / "theirs.nemo", folder / "back.safetensors")
    back = load_file(folder / "back.safetensors")
    differing = [name for name in weights if name not in back or not torch.equal(back[name], weights[name])]
    if differing or set(weights) != set(start):
        sys.exit(f"tensors were lost or changed on the way: {differing or sorted(set(weights) ^ set(start))}")
    figures = {"relative_loss_difference": max(1e-12, abs(ours - theirs) / theirs), "redline_loss": ours, "nemo_loss": theirs,
               "tensors_equal_after_both_ways": len(weights)}
    with open(nemo_step.real_stdout, "w") as answer:
        print(json.dumps(figures), file=answer)


main()
