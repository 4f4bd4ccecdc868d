#include "train/compile/package_build.h"

#include <fmt/format.h>
#include <torch/version.h>

#include <algorithm>
#include <cstdlib>

#include "core/error.h"
#include "core/file_ops.h"
#include "core/strings.h"
#include "core/time.h"
#include "device/process_memory.h"
#include "train/convert.h"
#include "train/files/safetensors.h"
#include "train/signals.h"

namespace redline::train {

namespace {

namespace fs = std::filesystem;

constexpr int64_t kMostMemory = int64_t{12} << 30, kMostFile = int64_t{4} << 30;
constexpr double kLookForStop = 0.1;  // seconds

fs::path log_of(const OwnFolder& scratch) { return scratch.path() / "log"; }

// The last line that says something. On a full disk there may be none.
std::string last_word(const fs::path& log) {
  std::string word;
  try {
    const std::string text = trim(read_file(log, size_t{16} << 20));
    word = printable(text.substr(text.rfind('\n') + 1));
  } catch (const DiskError&) {
  }
  return word.empty() ? "the compiling process failed and left no word" : word;
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
                       std::to_string(settings.threads),
                       "--torch",
                       TORCH_VERSION};
  if (settings.mode == CompileMode::Background) options.arguments.emplace_back("--background");
  const std::string scratch_text = folder.string();
  options.environment = {{"HOME", scratch_text}, {"TMPDIR", scratch_text}, {"TORCHINDUCTOR_CACHE_DIR", scratch_text}};
  for (const char* kept : {"CXX", "PATH"})
    if (const char* value = std::getenv(kept); value != nullptr && *value != '\0')
      options.environment.emplace_back(kept, value);
  options.output = log_of(*scratch_);
  // Its input is ours: where the network cannot be cut off it may run all the same.
  options.seal = {std::min(kMostMemory, std::max<int64_t>(1, device::system_available_bytes())), kMostFile,
                  /*allow_network=*/true};
  child_ = std::make_unique<ChildProcess>(options);
}

std::optional<PackageBuild::Outcome> PackageBuild::poll(double wait_seconds) {
  const double left = limit_seconds_ - seconds_between(begin_ns_, now_ns());
  const double wait = std::max(0.0, wait_seconds < 0 ? left : std::min(wait_seconds, left));
  // In slices: who asks the run to stop does not wait for a compiler.
  const int64_t begin = now_ns();
  for (;;) {
    const double rest = std::max(0.0, wait - seconds_between(begin, now_ns()));
    if (const auto result = child_->wait(std::min(kLookForStop, rest))) return ended(*result);
    if (rest <= kLookForStop || StopFlag::requested()) break;
  }
  if (limit_seconds_ > seconds_between(begin_ns_, now_ns())) return std::nullopt;
  child_.reset();
  return Outcome{std::nullopt, fmt::format("it took longer than {}", format_seconds(limit_seconds_)), limit_seconds_};
}

PackageBuild::Outcome PackageBuild::ended(const ChildResult& result) {
  Outcome outcome{std::nullopt, {}, result.seconds};
  if (result.signal != 0) {
    outcome.problem = fmt::format("the compiling process was ended by signal {}", result.signal);
    return outcome;
  }
  if (result.exit_code != 0) {  // whatever it left, if only half of a package
    outcome.problem = last_word(log_of(*scratch_));
    return outcome;
  }
  try {
    outcome.package = cache_.keep(std::move(*scratch_), name_, result.seconds);
  } catch (const std::exception& error) {
    outcome.problem = error.what();
  }
  return outcome;
}

}  // namespace redline::train
