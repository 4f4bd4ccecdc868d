#include "train/compile/package_build.h"

#include <fmt/format.h>

#include <cstdlib>

#include "core/error.h"
#include "core/file_ops.h"
#include "core/strings.h"
#include "core/time.h"
#include "train/convert.h"
#include "train/files/safetensors.h"

namespace redline::train {

namespace {

namespace fs = std::filesystem;

constexpr int64_t kMostMemory = int64_t{12} << 30, kMostFile = int64_t{4} << 30;

fs::path log_of(const OwnFolder& scratch) { return scratch.path() / "log"; }

// The last line that says something.
std::string last_word(const fs::path& log) {
  try {
    const std::string text = trim(read_file(log, size_t{16} << 20));
    return printable(text.substr(text.rfind('\n') + 1));
  } catch (const DiskError&) {
    return "it left no word";
  }
}

void write_constants(const fs::path& path, const TracedStep& step) {
  NamedTensors constants;
  for (const auto& [number, tensor] : step.program.constants)
    constants.emplace_back(std::to_string(number), tensor.cpu().contiguous());
  write_safetensors_atomic(path, constants);
}

}  // namespace

PackageBuild::PackageBuild(const TracedStep& step, const std::string& name, const CompileSettings& settings)
    : name_(name), limit_seconds_(settings.limit_seconds), begin_ns_(now_ns()), cache_(settings.folder) {
  scratch_.emplace(cache_.scratch());
  const fs::path& folder = scratch_->path();
  write_file_atomic(folder / "program.json", step.text().dump());
  write_constants(folder / "constants.safetensors", step);
  ChildOptions options;
  options.arguments = {python_program(),
                       "-I",
                       "-B",
                       python_script("compile_step.py").string(),
                       (folder / "program.json").string(),
                       (folder / "constants.safetensors").string(),
                       (folder / PackageCache::kPackage).string(),
                       "--threads",
                       std::to_string(settings.threads)};
  const std::string scratch_text = folder.string();
  options.environment = {{"HOME", scratch_text}, {"TMPDIR", scratch_text}, {"TORCHINDUCTOR_CACHE_DIR", scratch_text}};
  for (const char* kept : {"CXX", "PATH"})
    if (const char* value = std::getenv(kept); value != nullptr && *value != '\0')
      options.environment.emplace_back(kept, value);
  options.output = log_of(*scratch_);
  options.seal = {kMostMemory, kMostFile, /*allow_network=*/true};  // its input is ours
  child_ = std::make_unique<ChildProcess>(options);
}

std::optional<PackageBuild::Outcome> PackageBuild::poll(double wait_seconds) {
  const double left = limit_seconds_ - seconds_between(begin_ns_, now_ns());
  const double wait = wait_seconds < 0 ? left : std::min(wait_seconds, left);
  if (const auto result = child_->wait(std::max(0.0, wait))) return ended(*result);
  if (left - wait > 0) return std::nullopt;
  child_.reset();
  return Outcome{std::nullopt, fmt::format("it took longer than {}", format_seconds(limit_seconds_)), limit_seconds_};
}

PackageBuild::Outcome PackageBuild::ended(const ChildResult& result) {
  Outcome outcome{std::nullopt, {}, result.seconds};
  if (result.signal != 0)
    outcome.problem = fmt::format("the compiling process was ended by signal {}", result.signal);
  else if (result.exit_code != 0)
    outcome.problem = last_word(log_of(*scratch_));
  if (!outcome.problem.empty()) return outcome;
  try {
    outcome.package = cache_.keep(std::move(*scratch_), name_, result.seconds);
  } catch (const std::exception& error) {
    outcome.problem = error.what();
  }
  return outcome;
}

}  // namespace redline::train
