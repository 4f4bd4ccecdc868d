// See run_state.h. The mark is written after the first generation is durable, not before: a run that is killed between
// the two has lost nothing, and its generation speaks for itself.
#include "train/run/run_state.h"

#include <nlohmann/json.hpp>

#include "core/error.h"
#include "core/file_ops.h"
#include "core/log.h"
#include "core/strings.h"
#include "measure/record_lines.h"
#include "train/checkpoint/generation.h"

namespace redline::train {
namespace {

namespace fs = std::filesystem;

constexpr int kRunStateVersion = 1;
constexpr size_t kRunStateLimitBytes = 65536;

bool is_missing(const fs::path& path) {
  std::error_code code;
  return !fs::exists(path, code) && !code;
}

// In the record, after the last time somebody chose to start afresh.
bool record_tells_of_checkpoints(const fs::path& run) {
  const fs::path path = run / "events.jsonl";
  if (is_missing(path)) return false;
  std::vector<measure::Event> events;
  try {
    measure::read_events(read_file(path), "events.jsonl", events);
  } catch (const DataError&) {  // of another version: whoever opens the record will say so
    return false;
  }
  bool found = false;
  for (const measure::Event& event : events) {
    if (event.kind == "checkpoint.saved") found = true;
    if (event.kind == "run.afresh") found = false;
  }
  return found;
}

}  // namespace

std::string run_state_text(const RunState& state) {
  nlohmann::ordered_json json;
  json["format"] = "redline.run";
  json["version"] = kRunStateVersion;
  json["job"] = state.job;
  json["checkpointed"] = state.checkpointed;
  json["ended"] = state.ended;
  return json.dump(1) + "\n";
}

std::optional<RunState> read_run_state(const fs::path& run) {
  const fs::path path = run / kRunStateName;
  if (is_missing(path)) return std::nullopt;
  const auto json = nlohmann::json::parse(read_file(path, kRunStateLimitBytes), nullptr, /*allow_exceptions=*/false);
  try {
    if (json.at("format") != "redline.run" || json.at("version") != kRunStateVersion) return std::nullopt;
    return RunState{json.at("job"), json.at("checkpointed"), json.at("ended")};
  } catch (const nlohmann::json::exception&) {
    return std::nullopt;
  }
}

bool ever_had_checkpoint(const fs::path& run) {
  if (const auto state = read_run_state(run); state && state->checkpointed) return true;
  if (!generation_paths(run / "checkpoints").empty()) return true;
  for (const std::string& name : remains_of_generations(run / "checkpoints"))
    if (!starts_with(name, ".")) return true;  // half-written or half-removed ones are no loss
  return record_tells_of_checkpoints(run);
}

RunStateFile::RunStateFile(fs::path run, RunState state) : run_(std::move(run)), state_(std::move(state)) {
  if (const auto there = read_run_state(run_)) written_ = *there;
  if (written_ == state_) return;
  write_file_atomic(run_ / kRunStateName, run_state_text(state_));
  written_ = state_;
}

void RunStateFile::write_or_warn() {
  if (written_ == state_) return;
  try {
    write_file_atomic(run_ / kRunStateName, run_state_text(state_));
    written_ = state_;
  } catch (const DiskError& error) {
    log_warning_once(std::string("The run's own state could not be noted, it is tried again: ") + error.what());
  }
}

void RunStateFile::checkpointed() {
  const std::lock_guard lock(mutex_);
  state_.checkpointed = true;
  write_or_warn();
}

void RunStateFile::ended(const std::string& why) {
  const std::lock_guard lock(mutex_);
  state_.ended = why;
  write_or_warn();
}

}  // namespace redline::train
