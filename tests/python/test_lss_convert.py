"""Swin weights of other projects through `redline convert`: Microsoft's names and mmsegmentation's, whose merged patches lie in another order, give the
predictions of the weights that they were made of."""
import json

import pytest
import torch
from lss_job import make_job, make_scenes, redline
from safetensors.torch import load_file, save_file

TRUNK = "camencode.trunk."


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    folder = tmp_path_factory.mktemp("trained")
    scenes = make_scenes(folder / "set", num=4, validation=2)
    job = make_job(folder, scenes, steps=2)
    redline("train", job, "--run-dir", folder / "run")
    redline("convert", folder / "run", folder / "all.safetensors")
    return {"job": job, "run": folder / "run", "scenes": scenes, "weights": load_file(folder / "all.safetensors")}


def of_microsoft(weights):
    """The trunk as Microsoft's classifier has it: no output norms of its own, but a last norm, a head, indices and masks."""
    out = {name.removeprefix(TRUNK): value for name, value in weights.items() if name.startswith(TRUNK)}
    width = out["norm3.weight"].shape[0]
    return out | {"norm.weight": torch.full((width,), 7.0), "norm.bias": torch.full((width,), 7.0), "head.weight": torch.zeros(10, width),
                  "layers.0.blocks.0.attn_mask": torch.zeros(4, 49, 49)}


def unfolded(value):
    """[.., 4 neighbours x channels] in mmseg's order: channel by channel, a patch's rows and columns within; Microsoft's goes down before across."""
    channels = value.shape[-1] // 4
    parts = value.reshape(-1, 4, channels)[:, [0, 2, 1, 3]]  # (even, even), (even row, odd column), (odd row, even column), (odd, odd)
    return parts.transpose(1, 2).reshape(value.shape).contiguous()


def of_mmseg(weights):
    out = {}
    for name, value in of_microsoft(weights).items():
        if "attn_mask" in name or name.startswith(("norm.", "head.")):
            continue
        other = name.replace("patch_embed.proj.", "patch_embed.projection.").replace("layers.", "stages.", 1)
        other = other.replace(".attn.", ".attn.w_msa.").replace(".mlp.fc1.", ".ffn.layers.0.0.").replace(".mlp.fc2.", ".ffn.layers.1.")
        out["backbone." + other] = unfolded(value) if ".downsample." in name else value
    return out | {"decode_head.conv_seg.weight": torch.zeros(19, 8, 1, 1), "auxiliary_head.conv_seg.bias": torch.zeros(19)}


MAKE = {"microsoft": of_microsoft, "mmseg": of_mmseg}


@pytest.mark.parametrize("project", MAKE)
@pytest.mark.parametrize("form", ["torch", "safetensors"])
def test_the_round_trip_gives_the_same_tensors_and_predictions(trained, tmp_path, project, form):
    theirs = MAKE[project](trained["weights"])
    if form == "torch":
        torch.save({"model" if project == "microsoft" else "state_dict": theirs, "meta": {"epoch": 3}}, tmp_path / "swin.pth")
        source = tmp_path / "swin.pth"
    else:
        save_file(theirs, tmp_path / "swin.safetensors")
        source = tmp_path / "swin.safetensors"
    answer = json.loads(redline("-q", "convert", form, source, tmp_path / "out.safetensors", "--json").stdout)
    trunk = {name: value for name, value in trained["weights"].items() if name.startswith(TRUNK)}
    converted = load_file(tmp_path / "out.safetensors")
    assert set(converted) == set(trunk)
    for name, value in trunk.items():
        assert torch.equal(converted[name], value), name
    left = {"norm.weight", "norm.bias", "head.weight", "layers.0.blocks.0.attn_mask"} if project == "microsoft" else {"decode_head.conv_seg.weight", "auxiliary_head.conv_seg.bias"}
    assert set(answer["left_out"]) == left

    # The trunk of others in the whole model predicts what the model did; the rest of the weights are the run's.
    whole = trained["weights"] | converted
    save_file({name: value.contiguous() for name, value in whole.items()}, tmp_path / "whole.safetensors")
    redline("predict", trained["run"], trained["scenes"], "--out", tmp_path / "before.safetensors")
    redline("predict", trained["run"], trained["scenes"], "--checkpoint", tmp_path / "whole.safetensors", "--out", tmp_path / "after.safetensors")
    before, after = load_file(tmp_path / "before.safetensors")["preds"], load_file(tmp_path / "after.safetensors")["preds"]
    assert before.abs().max() > 0 and torch.equal(before, after)

    # Without the order of merged patches the predictions are others: the test can fail.
    wrong = dict(whole)
    for name in trunk:
        if name.endswith("downsample.reduction.weight"):
            wrong[name] = unfolded(wrong[name])
    save_file({name: value.contiguous() for name, value in wrong.items()}, tmp_path / "wrong.safetensors")
    redline("predict", trained["run"], trained["scenes"], "--checkpoint", tmp_path / "wrong.safetensors", "--out", tmp_path / "other.safetensors")
    assert not torch.equal(load_file(tmp_path / "other.safetensors")["preds"], before)


def test_a_run_starts_from_a_converted_trunk(trained, tmp_path):
    torch.save(of_mmseg(trained["weights"]), tmp_path / "swin.pth")
    redline("convert", "torch", tmp_path / "swin.pth", tmp_path / "swin.safetensors")
    done = redline("train", trained["job"], f"load_from={tmp_path / 'swin.safetensors'}", "model.optim.lr=0", "trainer.max_steps=1", "--run-dir", tmp_path / "run")
    assert "swin.safetensors" in done.stdout + done.stderr
    redline("convert", tmp_path / "run", tmp_path / "out.safetensors")
    begun = load_file(tmp_path / "out.safetensors")
    for name, value in trained["weights"].items():
        if name.startswith(TRUNK):
            assert torch.equal(begun[name], value), name


def test_a_file_that_only_looks_like_mmsegs_is_named(trained, tmp_path):
    theirs = of_mmseg(trained["weights"])
    theirs["backbone.stages.0.downsample.reduction.weight"] = torch.zeros(3, 8)
    torch.save(theirs, tmp_path / "swin.pth")
    said = redline("convert", "torch", tmp_path / "swin.pth", tmp_path / "out.safetensors", code=4).stderr
    assert "backbone.stages.0.downsample.reduction.weight" in said and not (tmp_path / "out.safetensors").exists()
