// The tasks this program knows: an explicit list on an object, filled by app (models/register.h). A duplicate name is
// an error; an unknown name's error lists the known ones.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "config/node.h"
#include "task/guide_claim.h"
#include "task/task.h"

namespace redline::task {

struct TaskEntry {
  std::string name;
  std::string sentence;
  std::function<std::unique_ptr<TaskConfig>()> make_config;
  // True when a file without `task:` is this task's (e.g. by NeMo's `_target_`s); may be empty.
  std::function<bool(const config::Node& request)> recognises;
  // Names of weights that another project uses -> ours, for `redline convert`; no names where the list is not that
  // project's. May be empty: the reference project's names are ours.
  std::function<std::map<std::string, std::string>(const std::vector<std::string>& names)> from_reference_names{};
  // What such a tensor, given its old name, is under the new one; may be empty.
  std::function<torch::Tensor(const std::string& name, const torch::Tensor& tensor)> from_reference_order{};
  std::vector<GuideClaim> guide_claims{};  // docs/guides_claims.json has them row by row with their guide
  // Paths of the options that say how often the task's monitor looks and draws; empty when it has none.
  std::string monitor_option{}, monitor_plot_option{};
};

class Registry {
 public:
  void add(TaskEntry entry);                             // throws InternalError on a duplicate
  const TaskEntry& find(const std::string& name) const;  // throws ConfigError listing the known names
  const TaskEntry* recognise(const config::Node& request) const;
  const std::vector<TaskEntry>& entries() const { return entries_; }

 private:
  std::vector<TaskEntry> entries_;
};

}  // namespace redline::task
