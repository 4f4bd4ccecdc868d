// All that training has learned and counted so far: what a checkpoint holds, and the way there and back.
#pragma once

#include <memory>
#include <vector>

#include "train/checkpoint/store.h"
#include "train/guards/memory_guard.h"
#include "train/guards/precision_guard.h"
#include "train/loop/log_window.h"
#include "train/loop/loop_parts.h"
#include "train/loop/loop_settings.h"
#include "train/loop/loop_state.h"
#include "train/optim/optimizer.h"

namespace redline::train {

class TrainingState {
 public:
  TrainingState(const LoopParts& parts, const LoopSettings& settings);

  // As a checkpoint holds it: names, and tensors that are the live ones.
  CheckpointState checkpoint() const;
  // Equal names and shapes, or CheckpointError. The loader is not moved.
  void restore(const CheckpointState& checkpoint);
  // The first weight that is not finite, or what of the optimiser's state made it so.
  std::optional<std::string> first_damage() const;

  LoopState at;  // where the loop is
  std::unique_ptr<Optimizer> optimizer;
  std::unique_ptr<Ema> ema;                // null: none
  std::unique_ptr<task::Monitor> monitor;  // null: none
  std::unique_ptr<EarlyStopping> early;    // null: none
  LossScaler scaler;
  PrecisionGuard precision;
  MemoryGuard memory;
  LogWindow window;

 private:
  const LoopParts& parts_;
  const LoopSettings& settings_;
  std::vector<torch::Tensor> weights_;  // of the optimiser's parameters, detached views
};

}  // namespace redline::train
