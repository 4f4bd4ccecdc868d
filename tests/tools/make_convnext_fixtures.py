"""tests/fixtures/convnext_sizes: what timm's ConvNeXt computes at other sizes than tests/fixtures/convnext (odd pictures, one channel, ConvNeXt V2).

Needs timm (1.0.30 was used) beside torch and safetensors: python tests/tools/make_convnext_fixtures.py [OUT]
Each folder: config.yaml (the job), weights and batch under timm's and this project's names, expected outputs, gradients and five AdamW losses.
"""
import sys
from pathlib import Path

import torch
from safetensors.torch import save_file
from timm.models.convnext import ConvNeXt

CASES = {
    # Channels that fill no vector, stages of several blocks, a picture whose rows and columns are cut at every stage.
    "odd_pictures": dict(dims=[12, 20, 28, 40], depths=[2, 1, 2, 1], classes=5, size=(47, 75), batch=3, channels=3, scale=0.5, grn=False),
    # Maps that end at one pixel.
    "grey_one_pixel": dict(dims=[8, 16, 24, 32], depths=[1, 1, 1, 2], classes=4, size=(37, 37), batch=4, channels=1, scale=1e-2, grn=False),
    "version_two": dict(dims=[8, 16, 16, 24], depths=[1, 2, 1, 1], classes=6, size=(64, 64), batch=3, channels=3, scale=0.0, grn=True),
    "wide_and_low": dict(dims=[16, 24, 40, 48], depths=[1, 1, 1, 1], classes=3, size=(96, 33), batch=2, channels=3, scale=1.0, grn=False),
}


def config(case):
    return f"""task: convnext
model:
  depths: {case['depths']}
  dims: {case['dims']}
  num_classes: {case['classes']}
  in_channels: {case['channels']}
  layer_scale_init: {case['scale']}
  use_grn: {str(case['grn']).lower()}
  loss: cross_entropy
  optim: {{name: adamw, lr: 1.0e-3, weight_decay: 0.05, no_decay: none}}
"""


def make(name, case, folder):
    torch.manual_seed(7)
    model = ConvNeXt(in_chans=case["channels"], num_classes=case["classes"], depths=case["depths"], dims=case["dims"], use_grn=case["grn"],
                     ls_init_value=case["scale"] or None)
    with torch.no_grad():  # timm's first weights leave most gradients near 0
        for parameter_name, parameter in model.named_parameters():
            if "gamma" in parameter_name:
                continue
            parameter.add_(torch.randn_like(parameter) * (0.1 if parameter.dim() > 1 else 0.2))
    weights = {k: v.clone() for k, v in model.state_dict().items()}
    images, labels = torch.randn(case["batch"], case["channels"], *case["size"]), torch.randint(0, case["classes"], (case["batch"],))
    optimiser = torch.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=0.05)
    expected, losses = {}, []
    for step in range(5):
        optimiser.zero_grad()
        features = model.forward_features(images)
        embedding = model.forward_head(features, pre_logits=True)
        logits = model.head.fc(embedding)
        loss = torch.nn.functional.cross_entropy(logits, labels)
        loss.backward()
        losses.append(loss.item())
        if step == 0:
            expected.update(features=features, embedding=embedding, logits=logits)
            expected.update({f"grad.{k}": v.grad.clone() for k, v in model.named_parameters()})
        optimiser.step()
    expected["losses"] = torch.tensor(losses, dtype=torch.float64)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.yaml").write_text(config(case))
    save_file(weights, folder / "weights.safetensors")
    save_file({"images": images, "labels": labels}, folder / "batch.safetensors")
    save_file({k: v.detach().contiguous() for k, v in expected.items()}, folder / "expected.safetensors")
    print(name, losses)


if __name__ == "__main__":
    out = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parent.parent / "fixtures/convnext_sizes"
    for case_name, values in CASES.items():
        make(case_name, values, out / case_name)
