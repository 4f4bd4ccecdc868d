#include "train/run/run_place.h"

#include <fmt/format.h>

#include <algorithm>

#include "core/error.h"
#include "core/file_ops.h"
#include "core/log.h"
#include "core/strings.h"
#include "measure/append_file.h"
#include "measure/run_record.h"
#include "train/checkpoint/generation.h"
#include "train/run/run_state.h"

namespace redline::train {
namespace {

namespace fs = std::filesystem;

constexpr const char* kRunsFolder = "runs";

// Newest first: their names are dates.
std::vector<fs::path> dated_runs(const fs::path& folder) {
  std::vector<fs::path> runs;
  std::error_code code;
  for (fs::directory_iterator it(folder, code), end; !code && it != end; it.increment(code)) {
    std::error_code ignored;
    if (it->is_directory(ignored)) runs.push_back(it->path());
  }
  if (code && code != std::errc::no_such_file_or_directory)
    measure::throw_disk_error("Looking for an unfinished run in", folder, code.value());
  std::sort(runs.rbegin(), runs.rend());
  return runs;
}

bool is_unfinished_run_of(const Job& job, const fs::path& run) {
  std::optional<RunState> state;
  try {
    state = read_run_state(run);
    std::error_code ignored;
    if (!state && fs::exists(run / kRunStateName, ignored))
      log_warning(fmt::format(
          "Whether {} is an unfinished run of this job cannot be seen: its {} is damaged or of another version. "
          "--run-dir with that path continues it.",
          printable(run.string()), kRunStateName));
  } catch (const DiskError& error) {  // e.g. somebody else's
    log_warning(fmt::format("Whether {} is an unfinished run of this job cannot be seen: {}", printable(run.string()),
                            error.what()));
  }
  return state && state->job == job.request_hash() && state->ended.empty();
}

// A run that has done more steps than are asked for now has nothing to do with this command.
bool is_past(const Job& job, const fs::path& run) {
  const std::vector<fs::path> generations = generation_paths(run / "checkpoints");
  if (generations.empty() || job.trainer().max_steps < 0) return false;
  return generation_step(generations.back().filename().string()).value() > job.trainer().max_steps;
}

}  // namespace

RunPlace RunPlace::choose(const Job& job) {
  const ExpManagerConfig& exp = job.exp_manager();
  RunPlace place;
  if (const auto named = named_run_directory(exp, job.root().name)) {
    place.directory_ = *named;
    std::error_code ignored;
    if (fs::exists(*named, ignored) && !fs::is_directory(*named, ignored))
      return place;  // the record says what is wrong
    place.existed_ = !place.make(*named);
    place.lock_.emplace(measure::RunLock::quietly(*named));
    return place;
  }
  const std::string name = exp.name.value_or(job.root().name);
  if (!exp.new_run && (exp.resumes_by_itself() || exp.resumes_by_name())) {
    std::string holder;
    for (const fs::path& run : dated_runs(fs::path(kRunsFolder) / name)) {
      if (!is_unfinished_run_of(job, run) || is_past(job, run)) continue;
      auto lock = measure::RunLock::if_free(run, holder);
      if (!lock) {
        log_info(fmt::format("{} is a run of this job that {} is training.", printable(run.string()), holder));
        continue;
      }
      if (!is_unfinished_run_of(job, run)) continue;  // it has ended meanwhile
      place.directory_ = run;
      place.lock_.emplace(std::move(*lock));
      place.existed_ = place.found_ = true;
      return place;
    }
  }
  do {  // when another start was quicker, it has this name, and the next is ours
    place.directory_ = measure::dated_run_directory(kRunsFolder, name);
  } while (!place.make(place.directory_));
  place.lock_.emplace(measure::RunLock::quietly(place.directory_));
  return place;
}

bool RunPlace::make(const fs::path& directory) {
  std::vector<fs::path> missing;
  std::error_code code;
  for (fs::path path = directory; !path.empty() && !fs::exists(path, code); path = path.parent_path())
    missing.push_back(path);
  bool ours = false;
  for (auto path = missing.rbegin(); path != missing.rend(); ++path) {
    ours = fs::create_directory(*path, code);
    if (code) measure::throw_disk_error("Creating the run directory", *path, code.value());
    if (ours) made_.push_back(*path);
  }
  return ours;
}

RunPlace::~RunPlace() {
  lock_.reset();
  for (auto path = made_.rbegin(); path != made_.rend(); ++path) {
    std::error_code ignored;  // not empty: it is somebody else's by now
    fs::remove(*path, ignored);
  }
}

std::optional<measure::RunLock> RunPlace::keep() {
  made_.clear();
  std::optional<measure::RunLock> lock;
  if (lock_) lock.emplace(std::move(*lock_));
  lock_.reset();
  return lock;
}

}  // namespace redline::train
