#include "task/registry.h"

#include <fmt/format.h>

#include "core/check.h"
#include "core/error.h"
#include "core/strings.h"

namespace redline::task {

void Registry::add(TaskEntry entry) {
  for (const TaskEntry& known : entries_)
    REDLINE_CHECK(known.name != entry.name, "task '" + entry.name + "' is registered twice");
  REDLINE_CHECK(!entry.name.empty() && entry.make_config, "a task has a name and makes a config");
  entries_.push_back(std::move(entry));
}

const TaskEntry& Registry::find(const std::string& name) const {
  std::vector<std::string> names;
  for (const TaskEntry& entry : entries_) {
    if (entry.name == name) return entry;
    names.push_back(entry.name);
  }
  const auto guess = did_you_mean(name, names);
  throw ConfigError(fmt::format("There is no task '{}'{}. Known tasks: {}.", name,
                                guess ? fmt::format("; did you mean '{}'?", *guess) : "",
                                names.empty() ? "none" : join(names, ", ")));
}

const TaskEntry* Registry::recognise(const config::Node& request) const {
  for (const TaskEntry& entry : entries_)
    if (entry.recognises && entry.recognises(request)) return &entry;
  return nullptr;
}

}  // namespace redline::task
