#include "train/guards/replay_copy.h"

#include <algorithm>
#include <cmath>

namespace redline::train {

namespace {

void copy_named(const NamedTensors& from, NamedTensors& to) {
  const torch::NoGradGuard no_grad;
  if (to.size() != from.size()) {
    to.clear();
    for (const auto& [name, tensor] : from) to.emplace_back(name, tensor.detach().clone(at::MemoryFormat::Preserve));
    return;
  }
  for (size_t i = 0; i < from.size(); ++i) {
    if (to[i].second.sizes() == from[i].second.sizes() && to[i].second.scalar_type() == from[i].second.scalar_type())
      to[i].second.copy_(from[i].second);
    else  // a monitor's window that has grown
      to[i].second = from[i].second.detach().clone(at::MemoryFormat::Preserve);
  }
}

}  // namespace

void ReplayCopy::take(const CheckpointState& state, int64_t step) {
  try {
    exists_ = false;
    copy_named(state.model, state_.model);
    copy_named(state.optimizer, state_.optimizer);
  } catch (...) {
    drop();
    throw;
  }
  state_.state_json = state.state_json;
  step_ = step;
  exists_ = true;
}

void ReplayCopy::drop() {
  state_ = CheckpointState();
  exists_ = false;
}

int64_t copy_interval(double copy_seconds, double step_seconds, double overhead) {
  if (!(step_seconds > 0) || !(overhead > 0)) return 10;  // nothing measured yet
  return std::clamp<int64_t>(static_cast<int64_t>(std::ceil(copy_seconds / (overhead * step_seconds))), 10, 100000);
}

}  // namespace redline::train
