// What a loop works on and whom it tells; owned by whoever started it.
#pragma once

#include "data/loader.h"
#include "device/tensor_copy.h"
#include "task/task.h"
#include "train/checkpoint/store.h"
#include "train/loop/observer.h"
#include "train/step/agreement.h"

namespace redline::train {

struct LoopParts {
  task::Task& task;
  data::Loader& train;
  data::Loader* validation = nullptr;
  CheckpointStore* store = nullptr;
  LoopObserver* observer = nullptr;  // null: nobody listens (the loop puts a silent one there)
  device::CopyStream* stream = nullptr;
  Agreement* agreement = nullptr;  // null: one process (the loop puts Alone there)

  std::vector<std::pair<std::string, data::Loader*>> more_validation{};  // further sets by name

  void event(const std::string& kind, const measure::FieldList& fields) const { observer->event(kind, fields); }
};

}  // namespace redline::train
