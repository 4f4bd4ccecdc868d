#include "train/weights.h"

#include <fmt/format.h>

#include <set>

#include "core/error.h"
#include "core/strings.h"
#include "train/checkpoint/loading.h"

namespace redline::train {

namespace {

std::string names_up_to(const std::vector<std::string>& names, size_t at_most) {
  const std::vector<std::string> shown(names.begin(),
                                       names.begin() + static_cast<std::ptrdiff_t>(std::min(names.size(), at_most)));
  return names.size() > at_most ? fmt::format("{} and {} more", join(shown, ", "), names.size() - at_most)
                                : join(shown, ", ");
}

}  // namespace

std::string WeightsReport::text(size_t at_most) const {
  std::string result = fmt::format("{} tensors loaded", loaded.size());
  for (const auto& [label, names] :
       {std::pair{"missing in the file", &missing}, std::pair{"unexpected in the file", &unexpected},
        std::pair{"of another shape", &reshaped}})
    if (!names->empty()) result += fmt::format("; {} ({}): {}", label, names->size(), names_up_to(*names, at_most));
  return result;
}

WeightsReport load_weights(torch::nn::Module& module, const std::map<std::string, torch::Tensor>& tensors) {
  const torch::NoGradGuard no_grad;
  WeightsReport report;
  std::set<std::string> known;
  const auto take = [&](const std::string& name, torch::Tensor target) {
    known.insert(name);
    const auto found = tensors.find(name);
    if (found == tensors.end()) {
      report.missing.push_back(name);
    } else if (found->second.sizes() != target.sizes()) {
      report.reshaped.push_back(name);
    } else {
      target.copy_(found->second);
      report.loaded.push_back(name);
    }
  };
  for (const auto& item : module.named_parameters()) take(item.key(), item.value());
  for (const auto& item : module.named_buffers()) take(item.key(), item.value());
  for (const auto& [name, tensor] : tensors)
    if (known.count(name) == 0) report.unexpected.push_back(name);
  return report;
}

std::map<std::string, torch::Tensor> read_weights(const std::filesystem::path& path) {
  std::error_code code;
  if (!std::filesystem::exists(path, code) && !code)
    throw CheckpointError(fmt::format("There are no weights at {}.", path.string()));
  const NamedTensors model = load_checkpoint(path).state.model;
  return {model.begin(), model.end()};
}

}  // namespace redline::train
