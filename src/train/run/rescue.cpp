#include "train/run/rescue.h"

#include <fmt/format.h>
#include <unistd.h>

#include "core/log.h"
#include "core/strings.h"
#include "train/checkpoint/generation.h"
#include "train/checkpoint/snapshot.h"
#include "train/run/run_state.h"

namespace redline::train {
namespace {

namespace fs = std::filesystem;

// A directory that was not there before.
fs::path make_beside(const fs::path& wanted) {
  FileOps& ops = posix_file_ops();
  if (const fs::path parent = wanted.parent_path(); !parent.empty()) ops.make_directory(parent);
  for (int i = 1;; ++i) {
    const fs::path path = i == 1 ? wanted : fs::path(wanted.string() + "-" + std::to_string(i));
    std::error_code code;
    if (fs::create_directory(path, code)) return path;
    if (code) throw DiskError(fmt::format("Cannot make '{}': {}.", printable(path.string()), code.message()));
  }
}

void write_rescue(const fs::path& place, const std::string& config_yaml, const std::string& job,
                  const CheckpointState& state, int64_t step) {
  FileOps& ops = posix_file_ops();
  ops.make_directory(place / "checkpoints");
  write_generation(place / "checkpoints", {step, "", std::nullopt}, live_files(state), ops);
  write_file_atomic(place / "config.resolved.yaml", config_yaml, ops);
  write_file_atomic(place / kRunStateName, run_state_text({job, true, ""}), ops);
}

fs::path without_last_slash(const fs::path& path) {
  const fs::path clean = path.lexically_normal();
  return clean.filename().empty() ? clean.parent_path() : clean;
}

}  // namespace

RunMovedError::RunMovedError(const fs::path& run)
    : Error(ExitCode::Disk,
            fmt::format("The run directory '{}' was removed, moved or replaced while it was trained in.",
                        printable(run.string()))) {}

void require_in_place(const measure::RunLock& lock, const fs::path& run) {
  if (!lock.in_place()) throw RunMovedError(run);
}

std::unique_ptr<WritableFile> InPlaceFileOps::create(const fs::path& path) {
  require_in_place(lock_, run_);
  return inner_.create(path);
}
void InPlaceFileOps::make_directory(const fs::path& path) {
  require_in_place(lock_, run_);
  inner_.make_directory(path);
}
void InPlaceFileOps::rename(const fs::path& from, const fs::path& to) {
  require_in_place(lock_, run_);
  inner_.rename(from, to);
}

void rescue(const fs::path& run, const std::string& config_yaml, const std::string& job, const CheckpointState& state,
            int64_t step) {
  const std::string suffix = fmt::format(".rescue-{}", ::getpid());
  const fs::path name = without_last_slash(run);
  std::error_code ignored;
  const fs::path temporary = fs::temp_directory_path(ignored) / ("redline-" + name.filename().string() + suffix);
  std::string why;
  for (const fs::path& wanted : {fs::path(name.string() + suffix), temporary}) {
    fs::path place;
    try {
      place = make_beside(wanted);
      write_rescue(place, config_yaml, job, state, step);
    } catch (const DiskError& error) {
      why += std::string(why.empty() ? "" : " ") + error.what();
      continue;
    }
    throw DiskError(fmt::format(
        "{} It was not written to any more. The state of step {} is in '{}': --run-dir with that path trains on from "
        "there, --resume with it takes it into another run.",
        RunMovedError(run).what(), step, printable(place.string())));
  }
  throw DiskError(fmt::format("{} The state of step {} could not be written anywhere else: {}",
                              RunMovedError(run).what(), step, why));
}

}  // namespace redline::train
