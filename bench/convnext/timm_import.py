"""Imported before timm: torchvision's wheel may be built for a torch with CUDA, and beside a CPU torch its operators do not load. timm needs only its
Python part, whose import asks for two operators to be declared."""
import torch

try:
    import torchvision  # noqa: F401
except RuntimeError:
    import sys

    for name in [name for name in sys.modules if name.split(".")[0] == "torchvision"]:
        del sys.modules[name]
    library = torch.library.Library("torchvision", "DEF")
    for name in ("nms", "qnms"):
        library.define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
    import torchvision  # noqa: F401
