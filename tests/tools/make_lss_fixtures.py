"""make_lss_fixtures.py: Lift-Splat-Shoot at sizes other than the reference fixture's, computed by the PyTorch peer (bench/lss/peer_model.py, which itself gives the reference
fixture's losses: `peer_step.py check FOLDER`). Weights and batch are formulas, so a fixture holds only results; tests/lss_fixture_test.cpp has the same formulas."""
import math
import pathlib
import sys

import torch
from safetensors.torch import save_file

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "bench/lss"))
from peer_model import LiftSplat  # noqa: E402

# Maps that fill their windows and maps that do not, shifted blocks in every stage, odd maps to merge; heads of a width that the fused kernels do not take.
CASES = {"padded": dict(size=(96, 160), width=16, layers=(2, 2, 2, 2), heads=(2, 2, 4, 4), neck=24, channels=8, batch=2, cameras=5),
         "narrow": dict(size=(64, 96), width=12, layers=(1, 2, 1, 1), heads=(1, 2, 2, 4), neck=16, channels=5, batch=3, cameras=2)}
GRADIENTS = ["camencode.trunk.patch_embed.proj.weight", "camencode.trunk.layers.0.blocks.0.attn.qkv.weight", "camencode.trunk.layers.1.blocks.1.attn.relative_position_bias_table",
             "camencode.trunk.layers.1.blocks.1.mlp.fc1.weight", "camencode.trunk.layers.1.downsample.reduction.weight", "camencode.trunk.norm3.weight", "camencode.depthnet.weight",
             "bevencode.bn1.weight", "bevencode.up2.4.weight"]


def noise(shape, seed):
    """Between -1 and 1: a hash of the place, the same bits in C++."""
    at = torch.arange(math.prod(shape)) + int(seed * 16) * 0x9E3779B1 & 0xFFFFFFFF
    for _ in range(2):
        at = (at ^ at >> 16) * 0x45D9F3B & 0xFFFFFFFF
    return ((at ^ at >> 16).double() / 2 ** 31 - 1).view(shape).float()


def fill(model):
    with torch.no_grad():
        for i, (name, p) in enumerate(sorted(model.named_parameters())):
            if p.dim() < 2:  # norms and biases
                base = 1.0 if name.endswith("weight") else 0.0
                p.copy_(base + 0.1 * noise(p.shape, i))
            else:
                p.copy_(noise(p.shape, i) * (3 * p.shape[0] / p.numel()) ** 0.5 if "table" not in name else 0.2 * noise(p.shape, i))


def batch_of(case, cells):
    b, n, (h, w) = case["batch"], case["cameras"], case["size"]
    rots = torch.zeros(b, n, 3, 3)
    for i in range(b):
        for k in range(n):
            yaw = 1.1 * k + 0.3 * i
            rots[i, k] = torch.tensor([[math.sin(yaw), 0, math.cos(yaw)], [-math.cos(yaw), 0, math.sin(yaw)], [0, -1, 0]])
    out = {"imgs": noise((b, n, 3, h, w), 0.1), "rots": rots, "trans": 0.3 * noise((b, n, 3), 0.2),
           "intrins": torch.tensor([[w * 0.8, 0, w * 0.5], [0, w * 0.8, h * 0.5], [0, 0, 1]]).expand(b, n, 3, 3).contiguous(),
           "post_rots": torch.eye(3).expand(b, n, 3, 3).contiguous(), "post_trans": 0.5 * noise((b, n, 3), 0.7)}
    out["post_trans"][..., 2] = 0
    return out, (noise((b, 1, *cells), 0.5) > 0.9).float()


for name, case in CASES.items():
    torch.manual_seed(0)
    sizes = {k: v for k, v in case.items() if k not in ("batch", "cameras")}
    model = LiftSplat([-32, 32, 2], [-24, 24, 2], [-4, 4, 4], [4, 28, 4], drop_path=0.0, **sizes)
    fill(model)
    batch, truth = batch_of(case, model.nx[:2].tolist())
    optimiser = torch.optim.SGD(model.parameters(), 0.01)
    expected, losses = {}, []
    features = []
    model.camencode.trunk.norm3.register_forward_hook(lambda _, __, y: features.append(y.detach()))
    for step in range(3):
        optimiser.zero_grad()
        preds = model(*(batch[k] for k in ("imgs", "rots", "trans", "intrins", "post_rots", "post_trans")))
        loss = torch.nn.functional.binary_cross_entropy_with_logits(preds, truth, pos_weight=torch.tensor([2.13]))
        loss.backward()
        losses.append(loss.item())
        if step == 0:
            expected["preds"] = preds.detach().clone()
            expected["camera_features"] = features[0].clone()
            for key, p in model.named_parameters():
                if key in GRADIENTS:
                    expected["grad." + key] = p.grad.clone()
        optimiser.step()
    expected["losses"] = torch.tensor(losses, dtype=torch.float64)
    folder = ROOT / "tests/fixtures/lss"
    folder.mkdir(parents=True, exist_ok=True)
    save_file({k: v.contiguous() for k, v in expected.items()}, str(folder / f"{name}.safetensors"))
    print(name, losses, float(expected["preds"].abs().max()))
