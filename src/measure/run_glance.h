// A run at a glance, for lists of many: the end of its record, without reading the rest. A run of a million steps costs
// what one of a hundred does, about a tenth of a millisecond.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "measure/run_record.h"

namespace redline::measure {

enum class RunPhase { Running, Stopped, Finished };
const char* run_phase_name(RunPhase phase);  // "running", "stopped", "finished"

struct RunGlance {
  std::filesystem::path directory;
  std::string task, name, precision;
  RunPhase phase = RunPhase::Stopped;
  std::string ended;                          // why it finished: "max_steps", ...
  int64_t step = 0, epoch = 0;                // of the last row
  int64_t max_steps = -1, max_epochs = -1;    // -1: no limit, or not known
  std::vector<StepRow> rows;                  // the last ones, at most kGlanceRows
  std::map<std::string, double> validation;   // the last value of each val_ metric that is near the end
  std::filesystem::file_time_type written{};  // when the record was last added to
  double samples_per_second() const;          // over `rows`; 0 when there are none
};
inline constexpr int64_t kGlanceRows = 64;

// Files that somebody holds a lock on, as the kernel tells; taken once for a list of runs.
struct HeldFiles {
  std::set<std::pair<uint64_t, uint64_t>> files;  // device and inode
  static HeldFiles now();
  bool holds(const std::filesystem::path& path) const;
};

// nullopt when the directory is no run record, or one that cannot be read.
std::optional<RunGlance> glance_at_run(const std::filesystem::path& directory, const HeldFiles& held);

// The events at the begin and at the end of a record, without reading what is between; empty when there are none.
struct EdgeEvents {
  std::vector<Event> first, last;
};
EdgeEvents edge_events(const std::filesystem::path& directory, int64_t bytes = 48 << 10);
// The last values of the metrics that are near the end.
std::map<std::string, double> last_metrics(const std::filesystem::path& directory);

// The run directories in `folder`, itself included, down to `depth` folders below it; nothing below a run is looked at.
std::vector<std::filesystem::path> find_runs(const std::filesystem::path& folder, int depth = 3);

}  // namespace redline::measure
