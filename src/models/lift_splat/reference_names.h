// Weights of Swin as other projects store them, as this model's trunk: Microsoft's repositories (Swin-Transformer and
// its segmentation and detection variants) have our names after a prefix; mmsegmentation has names of its own and
// merges patches in the order of nn.Unfold, channel by channel, where Microsoft puts the four neighbours one after
// another (its tools/model_converters/swin2mmseg.py is the way there; this is the way back).
#pragma once

#include <torch/torch.h>

#include <map>
#include <string>
#include <vector>

namespace redline::models::lift_splat {

// Old name -> new name, empty for what the trunk has no place for (classifier, masks, norms of unused stages); nothing
// unless the list is that of a Swin.
std::map<std::string, std::string> names_of_swin(const std::vector<std::string>& names);

// The tensor of that name of mmsegmentation with its columns in Microsoft's order; others as they are. Throws
// CheckpointError, naming tensor and shape, where it cannot be one of merged patches.
torch::Tensor in_order_of_swin(const std::string& name, const torch::Tensor& tensor);

}  // namespace redline::models::lift_splat
