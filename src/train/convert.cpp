// See convert.h.
#include "train/convert.h"

#include <unistd.h>

#include <cstdlib>
#include <nlohmann/json.hpp>

#include "core/error.h"
#include "core/strings.h"
#include "train/checkpoint/store.h"
#include "train/child/child_process.h"
#include "train/files/safetensors.h"
#include "train/files/safetensors_header_text.h"

namespace redline::train {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kEmaPrefix = "ema.";

bool is_torch_file(const fs::path& path) {
  const std::string extension = to_lower(path.extension().string());
  return extension == ".nemo" || extension == ".ckpt" || extension == ".pt" || extension == ".pth" ||
         extension == ".bin";
}

// A file name beside the target that is removed again, whatever happens.
class TemporaryFile {
 public:
  TemporaryFile(const fs::path& beside, const std::string& suffix) : path_(beside) {
    path_ += ".tmp-" + std::to_string(::getpid()) + suffix;
  }
  ~TemporaryFile() {
    std::error_code ignored;
    fs::remove(path_, ignored);
  }
  TemporaryFile(const TemporaryFile&) = delete;
  TemporaryFile& operator=(const TemporaryFile&) = delete;
  const fs::path& path() const { return path_; }

 private:
  fs::path path_;
};

// Loading, copying and writing hold a tensor up to four times.
constexpr int64_t kCopies = 4;

std::string run_python(const ConvertRequest& request, std::vector<std::string> arguments, const fs::path& log,
                       const fs::path& reads, const std::string& what) {
  const auto size = static_cast<int64_t>(fs::file_size(reads));
  const int64_t memory =
      request.memory_bytes > 0 ? request.memory_bytes : std::max(int64_t{2} << 30, 2 * kCopies * size);
  ChildOptions options;
  options.arguments = {python_program(), "-I", "-B", python_script("convert.py").string()};
  options.arguments.insert(options.arguments.end(), arguments.begin(), arguments.end());
  options.arguments.insert(options.arguments.end(), {"--most-bytes", std::to_string(memory / kCopies)});
  options.output = log;
  options.seal = {memory, memory, request.allow_network};
  run_child(options, what,
            request.timeout_seconds > 0 ? request.timeout_seconds : 600 + static_cast<double>(size) / 20e6);
  return read_file(log, size_t{1} << 20);
}

NamedTensors import_torch_file(const ConvertRequest& request, ConvertReport& report) {
  const TemporaryFile imported(request.target, ".safetensors"), log(request.target, ".log"),
      config(request.target, ".yaml");
  std::vector<std::string> arguments = {"import", fs::absolute(request.source).string(), imported.path().string()};
  if (!request.key.empty()) arguments.insert(arguments.end(), {"--key", request.key});
  if (request.source.extension() == ".nemo")
    arguments.insert(arguments.end(), {"--config-out", config.path().string()});
  const std::string said = run_python(request, arguments, log.path(), request.source,
                                      "Reading '" + printable(request.source.string()) + "'");
  const std::string text = trim(said);
  const auto answer =
      nlohmann::json::parse(text.substr(text.rfind('\n') + 1), nullptr, false);  // the last line; npos + 1 is 0
  if (answer.is_object()) report.skipped = answer.value("skipped", std::vector<std::string>());
  if (fs::exists(config.path())) {
    report.config_written = fs::path(request.target).replace_extension(".yaml");
    posix_file_ops().rename(config.path(), report.config_written);
  }
  return read_named_tensors(imported.path());
}

NamedTensors averaged_weights(LoadedCheckpoint loaded, const fs::path& source) {
  NamedTensors weights = loaded.state.model;
  std::map<std::string, torch::Tensor> averaged;
  for (const auto& [name, tensor] : loaded.state.optimizer) {
    if (starts_with(name, kEmaPrefix)) averaged[name.substr(kEmaPrefix.size())] = tensor;
  }
  if (averaged.empty()) {
    throw CheckpointError("'" + printable(source.string()) +
                          "' has no averaged weights; convert without --ema, or train with an EMA.");
  }
  for (auto& [name, tensor] : weights) {  // buffers have no average: they stay
    if (const auto found = averaged.find(name); found != averaged.end()) tensor = found->second;
  }
  return weights;
}

void rename_tensors(NamedTensors& tensors, const ConvertRequest& request, ConvertReport& report) {
  std::map<std::string, std::string> taken;
  for (auto& [name, tensor] : tensors) {
    const std::string before = name;
    for (const auto& [from, to] : request.rename_prefixes) {
      if (!starts_with(name, from)) continue;
      name = to + name.substr(from.size());
      ++report.renamed;
      break;
    }
    if (!taken.emplace(name, before).second) {
      throw ConfigError("Renaming gives '" + printable(name) + "' twice (from '" + printable(taken[name]) + "' and '" +
                        printable(before) + "'); use other prefixes.");
    }
  }
}

void convert_types(NamedTensors& tensors, const std::string& dtype) {
  if (dtype.empty()) return;
  const auto stored = find_stored_type(dtype);
  if (!stored || !c10::isFloatingType(scalar_type(*stored))) {
    throw ConfigError("--dtype is '" + printable(dtype) + "'; expected F64, F32, F16 or BF16.");
  }
  for (auto& [name, tensor] : tensors) {
    if (tensor.is_floating_point()) tensor = tensor.to(scalar_type(*stored));
  }
}

void write_target(const ConvertRequest& request, const NamedTensors& tensors) {
  if (!is_torch_file(request.target)) {
    write_safetensors_atomic(request.target, tensors, {{"format", "pt"}});
    return;
  }
  const TemporaryFile plain(request.target, ".safetensors"), log(request.target, ".log");
  const TemporaryFile written(request.target, request.target.extension().string());
  write_safetensors_atomic(plain.path(), tensors);
  std::vector<std::string> arguments = {"export", plain.path().string(), written.path().string()};
  if (!request.config.empty()) arguments.insert(arguments.end(), {"--config", fs::absolute(request.config).string()});
  run_python(request, arguments, log.path(), plain.path(), "Writing '" + printable(request.target.string()) + "'");
  posix_file_ops().rename(written.path(), request.target);
}

}  // namespace

std::string python_program() {
  std::string program = "python3";
  const fs::path project = fs::path(REDLINE_SOURCE_DIR) / ".venv" / "bin" / "python";
  std::error_code code;
  if (fs::exists(project, code)) program = project.string();
  if (const char* chosen = std::getenv("REDLINE_PYTHON"); chosen != nullptr && *chosen != '\0') program = chosen;
  if (program.find('/') != std::string::npos) return program;
  const char* path = std::getenv("PATH");
  for (const std::string& folder : split(path != nullptr ? path : "/usr/local/bin:/usr/bin:/bin", ':'))
    if (::access((fs::path(folder) / program).c_str(), X_OK) == 0) return (fs::path(folder) / program).string();
  return program;
}

fs::path python_script(const std::string& name) {
  std::vector<fs::path> folders;
  if (const char* chosen = std::getenv("REDLINE_PYTHON_DIR"); chosen != nullptr && *chosen != '\0')
    folders.emplace_back(chosen);
  std::error_code code;
  const fs::path program = fs::read_symlink("/proc/self/exe", code);
  if (!code) folders.push_back(program.parent_path().parent_path() / "share" / "redline" / "python");
  folders.push_back(fs::path(REDLINE_SOURCE_DIR) / "python");
  for (const fs::path& folder : folders) {
    if (fs::exists(folder / name, code)) return folder / name;
  }
  throw DeviceError("The script " + name + " was not found in " + folders.back().string() +
                    "; set REDLINE_PYTHON_DIR to its folder.");
}

ConvertReport convert_weights(const ConvertRequest& request) {
  std::error_code code;
  if (!fs::exists(request.source, code)) {
    throw ConfigError("There is nothing at '" + printable(request.source.string()) + "' to convert; check the path.");
  }
  ConvertReport report;
  NamedTensors tensors;
  if (fs::is_regular_file(request.source, code) && is_torch_file(request.source)) {
    tensors = import_torch_file(request, report);
  } else {
    LoadedCheckpoint loaded = CheckpointStore::load(request.source);
    tensors = request.ema ? averaged_weights(std::move(loaded), request.source) : std::move(loaded.state.model);
  }
  rename_tensors(tensors, request, report);
  convert_types(tensors, request.dtype);
  write_target(request, tensors);
  report.tensors = static_cast<int64_t>(tensors.size());
  for (const auto& [name, tensor] : tensors) report.elements += tensor.numel();
  return report;
}

}  // namespace redline::train
