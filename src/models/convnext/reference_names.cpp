#include "models/convnext/reference_names.h"

#include <algorithm>

#include "core/strings.h"

namespace redline::models::convnext {

namespace {

// The parts of a block, by their first word.
std::string block_part(const std::vector<std::string>& words, size_t first) {
  std::vector<std::string> rest(words.begin() + static_cast<std::ptrdiff_t>(first), words.end());
  if (rest[0] == "dwconv") rest[0] = "conv_dw";
  if (rest[0] == "pwconv1") rest[0] = "mlp.fc1";
  if (rest[0] == "pwconv2") rest[0] = "mlp.fc2";
  if (rest[0] == "grn") {
    rest[0] = "mlp.grn";
    if (rest.back() == "gamma") rest.back() = "weight";
    if (rest.back() == "beta") rest.back() = "bias";
  }
  return join(rest, ".");
}

std::string timm_name(const std::string& name) {
  const std::vector<std::string> words = split(name, '.');
  if (words.size() == 4 && words[0] == "downsample_layers")
    return (words[1] == "0" ? "stem." : "stages." + words[1] + ".downsample.") + words[2] + "." + words[3];
  if (words.size() >= 4 && words[0] == "stages" && words[2].find_first_not_of("0123456789") == std::string::npos)
    return "stages." + words[1] + ".blocks." + words[2] + "." + block_part(words, 3);
  if (words.size() == 2 && words[0] == "norm") return "head.norm." + words[1];
  if (words.size() == 2 && words[0] == "head") return "head.fc." + words[1];
  return name;
}

}  // namespace

std::map<std::string, std::string> names_from_original(const std::vector<std::string>& names) {
  std::map<std::string, std::string> renamed;
  if (std::find(names.begin(), names.end(), "downsample_layers.0.0.weight") == names.end()) return renamed;
  for (const std::string& name : names)
    if (const std::string other = timm_name(name); other != name) renamed.emplace(name, other);
  return renamed;
}

}  // namespace redline::models::convnext
