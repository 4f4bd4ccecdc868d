#include "train/validation_rows.h"

#include "data/loader.h"
#include "train/step/batches.h"

namespace redline::train {

std::vector<task::Batch> validation_rows(const Job& job, const task::Task& task, int64_t num) {
  std::vector<task::Batch> rows;
  const auto loader = job.build_loader(task, Job::Part::Validation, {});
  if (!loader) return rows;
  loader->seek(0, 0);
  while (static_cast<int64_t>(rows.size()) < num) {
    const auto batch = loader->next();
    if (!batch) break;
    const task::Batch all = to_task_batch(*batch, nullptr);
    for (int64_t b = 0; b < all.size() && static_cast<int64_t>(rows.size()) < num; ++b)
      rows.push_back(narrow_batch(all, task.schema(), b, 1));
  }
  return rows;
}

}  // namespace redline::train
