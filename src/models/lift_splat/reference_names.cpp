#include "models/lift_splat/reference_names.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "core/error.h"
#include "core/strings.h"

namespace redline::models::lift_splat {

namespace {

constexpr const char* kTrunk = "camencode.trunk.";
constexpr const char* kMicrosoft = "layers.0.blocks.0.attn.relative_position_bias_table";
constexpr const char* kMmseg = "stages.0.blocks.0.attn.w_msa.relative_position_bias_table";

bool replace_start(std::string& text, const std::string& from, const std::string& to) {
  if (!starts_with(text, from)) return false;
  text = to + text.substr(from.size());
  return true;
}

// What follows the block's number.
std::string part_of_block(std::string part) {
  for (const auto& [from, to] : {std::pair{"attn.w_msa.", "attn."}, std::pair{"ffn.layers.0.0.", "mlp.fc1."},
                                 std::pair{"ffn.layers.1.", "mlp.fc2."}})
    if (replace_start(part, from, to)) break;
  return part;
}

// Empty for what has no place in the trunk.
std::string trunk_name(std::string name, bool mmseg) {
  if (mmseg) {
    if (replace_start(name, "patch_embed.projection.", "patch_embed.proj.")) return name;
    if (starts_with(name, "stages.")) {
      std::vector<std::string> words = split(name, '.');
      if (words.size() > 4 && words[2] == "blocks")
        name = fmt::format("layers.{}.blocks.{}.{}", words[1], words[3],
                           part_of_block(fmt::format("{}", fmt::join(words.begin() + 4, words.end(), "."))));
      else
        name = "layers." + name.substr(7);
    }
  }
  const bool mask = name.size() > 10 && name.compare(name.size() - 10, 10, ".attn_mask") == 0;
  if (starts_with(name, "layers.")) return mask ? "" : name;
  if (starts_with(name, "patch_embed.") || starts_with(name, "norm2.") || starts_with(name, "norm3.")) return name;
  return "";
}

}  // namespace

std::map<std::string, std::string> names_of_swin(const std::vector<std::string>& names) {
  std::map<std::string, std::string> renamed;
  for (const std::string prefix : {"", "backbone.", "module.", "encoder."}) {
    const auto has = [&](const char* name) {
      return std::find(names.begin(), names.end(), prefix + name) != names.end();
    };
    const bool mmseg = has(kMmseg);
    if (!mmseg && !has(kMicrosoft)) continue;
    for (const std::string& name : names) {
      std::string other;
      if (starts_with(name, prefix)) other = trunk_name(name.substr(prefix.size()), mmseg);
      renamed.emplace(name, other.empty() ? other : kTrunk + other);
    }
    return renamed;
  }
  return renamed;
}

torch::Tensor in_order_of_swin(const std::string& name, const torch::Tensor& tensor) {
  const size_t at = name.find("stages."), merging = name.find(".downsample.");
  if (at == std::string::npos || merging == std::string::npos) return tensor;
  const std::string part = name.substr(merging + 12);
  const bool reduction = part == "reduction.weight";
  if (!reduction && part != "norm.weight" && part != "norm.bias") return tensor;
  const int64_t wide = tensor.dim() > 0 ? tensor.size(-1) : 0;
  if (tensor.dim() != (reduction ? 2 : 1) || wide == 0 || wide % 4 != 0 || (reduction && 2 * tensor.size(0) != wide))
    throw CheckpointError(fmt::format(
        "'{}' is [{}]; expected {}, four neighbours of each of c channels: this is no Swin of mmsegmentation.",
        printable(name), fmt::join(tensor.sizes(), ", "), reduction ? "[2c, 4c]" : "[4c]"));
  // Columns are c * 4 + 2 * row + column there, and (row + 2 * column) * C + c here.
  const int64_t rows = tensor.numel() / wide, channels = wide / 4;
  return tensor.reshape({rows, channels, 2, 2}).permute({0, 3, 2, 1}).reshape(tensor.sizes()).contiguous();
}

}  // namespace redline::models::lift_splat
