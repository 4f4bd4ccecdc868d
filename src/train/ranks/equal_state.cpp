#include "train/ranks/equal_state.h"

#include <fmt/format.h>

#include "core/error.h"
#include "core/hash.h"
#include "core/log.h"

namespace redline::train {

namespace {

uint64_t hash_layout(const NamedTensors& tensors, uint64_t seed) {
  std::string text;
  for (const auto& [name, tensor] : tensors)
    text += fmt::format("{} {} {}\n", name, c10::str(tensor.sizes()), static_cast<int>(tensor.scalar_type()));
  return hash64(text, seed);
}

uint64_t hash_values(const NamedTensors& tensors) {
  uint64_t hash = 0;
  for (const auto& [name, tensor] : tensors) {
    const torch::Tensor host = tensor.detach().to(torch::kCPU).contiguous();
    hash = hash64(std::span(static_cast<const std::byte*>(host.const_data_ptr()), host.nbytes()), hash);
  }
  return hash;
}

// The first rank whose number is not rank 0's; -1: none. A hash goes as two exact numbers.
int first_that_differs(RankGroup& group, uint64_t mine) {
  const double halves[] = {static_cast<double>(mine >> 32), static_cast<double>(mine & 0xffffffffu)};
  const std::vector<double> all = group.gather(halves);
  for (size_t r = 1; 2 * r < all.size(); ++r)
    if (all[2 * r] != all[0] || all[2 * r + 1] != all[1]) return static_cast<int>(r);
  return -1;
}

}  // namespace

void equal_state(RankGroup& group, const CheckpointState& state) {
  if (const int rank = first_that_differs(group, hash_layout(state.optimizer, hash_layout(state.model, 0))); rank >= 0)
    throw ConfigError(fmt::format(
        "Rank {} has another model than rank 0 (names or shapes of its tensors); all ranks need the same config.",
        rank));
  if (const int rank = first_that_differs(group, hash_values(state.optimizer)); rank >= 0)
    throw ConfigError(
        fmt::format("Rank {} begins from another state of the optimiser than rank 0; all ranks must read the same "
                    "checkpoint (a folder that all machines see).",
                    rank));
  if (const int rank = first_that_differs(group, hash_values(state.model)); rank >= 0 && group.rank() == 0)
    log_warning(fmt::format("Rank {} began with other weights than rank 0; rank 0's are taken.", rank));
  std::vector<torch::Tensor> tensors;
  for (const auto& [name, tensor] : state.model) tensors.push_back(tensor);
  group.follow_in_place(tensors);
  if (const int rank = first_that_differs(group, hash_values(state.model)); rank >= 0)
    throw PeerLostError(fmt::format("Rank {} does not hold rank 0's weights after they were sent to it.", rank));
}

}  // namespace redline::train
