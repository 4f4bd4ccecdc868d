// See convert.h.
#include "train/convert.h"

#include <unistd.h>

#include <cstdlib>
#include <nlohmann/json.hpp>

#include "core/error.h"
#include "core/own_folder.h"
#include "core/safetensors_header_text.h"
#include "core/strings.h"
#include "train/checkpoint/store.h"
#include "train/child/child_process.h"
#include "train/files/safetensors.h"

namespace redline::train {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kEmaPrefix = "ema.";

// Beside the target, where a file can be renamed into place; what a killed conversion left there goes with the next.
OwnFolder scratch_beside(const fs::path& target) {
  return OwnFolder::temporary("convert", fs::absolute(target).parent_path());
}

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

// OUT.yaml, or OUT.2.yaml where that is somebody's own: a recipe may well have the name of its weights.
fs::path place_for_config(const fs::path& target, const fs::path& config) {
  const std::string text = read_file(config);
  for (int i = 1;; ++i) {
    const fs::path path = fs::path(target).replace_extension(i == 1 ? ".yaml" : "." + std::to_string(i) + ".yaml");
    std::error_code code;
    if (!fs::exists(fs::symlink_status(path, code))) return path;
    if (fs::is_regular_file(path, code) && fs::file_size(path, code) == text.size() && read_file(path) == text)
      return path;
  }
}

NamedTensors import_torch_file(const ConvertRequest& request, ConvertReport& report) {
  const OwnFolder scratch = scratch_beside(request.target);
  const fs::path imported = scratch.path() / "imported.safetensors", config = scratch.path() / "config.yaml";
  std::vector<std::string> arguments = {"import", fs::absolute(request.source).string(), imported.string()};
  if (!request.key.empty()) arguments.insert(arguments.end(), {"--key", request.key});
  if (request.source.extension() == ".nemo") arguments.insert(arguments.end(), {"--config-out", config.string()});
  const std::string said = run_python(request, arguments, scratch.path() / "log", request.source,
                                      "Reading '" + printable(request.source.string()) + "'");
  const std::string text = trim(said);
  const auto answer =
      nlohmann::json::parse(text.substr(text.rfind('\n') + 1), nullptr, false);  // the last line; npos + 1 is 0
  if (answer.is_object()) report.skipped = answer.value("skipped", std::vector<std::string>());
  if (fs::exists(config)) {
    report.config_written = place_for_config(request.target, config);
    posix_file_ops().rename(config, report.config_written);
  }
  return read_named_tensors(imported);
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

// A vector that its project keeps as [1, ..., 1, n] is [n] to us.
torch::Tensor plain_vector(const torch::Tensor& tensor) {
  return tensor.dim() > 2 && tensor.size(-1) == tensor.numel() ? tensor.reshape({-1}) : tensor;
}

void use_known_names(NamedTensors& tensors, const ConvertRequest& request, ConvertReport& report) {
  if (!request.known_names) return;
  std::vector<std::string> names;
  for (const auto& [name, tensor] : tensors) names.push_back(name);
  const std::map<std::string, std::string> renamed = request.known_names(names);
  for (auto& [name, tensor] : tensors) {
    const auto found = renamed.find(name);
    if (found == renamed.end()) continue;
    if (found->second.empty()) {
      report.left_out.push_back(name);
      name.clear();
      continue;
    }
    if (request.known_order) tensor = request.known_order(name, tensor);
    name = found->second;
    tensor = plain_vector(tensor);
    ++report.renamed;
  }
  std::erase_if(tensors, [](const auto& item) { return item.first.empty(); });
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
  const OwnFolder scratch = scratch_beside(request.target);
  const fs::path plain = scratch.path() / "plain.safetensors";
  const fs::path written = scratch.path() / ("written" + request.target.extension().string());
  write_safetensors_atomic(plain, tensors);
  std::vector<std::string> arguments = {"export", plain.string(), written.string()};
  fs::path config = request.config.empty() ? fs::path() : fs::absolute(request.config);
  if (config.empty() && !request.config_text.empty())
    write_file_atomic(config = scratch.path() / "model_config.yaml", request.config_text);
  if (!config.empty()) arguments.insert(arguments.end(), {"--config", config.string()});
  run_python(request, arguments, scratch.path() / "log", plain, "Writing '" + printable(request.target.string()) + "'");
  posix_file_ops().rename(written, request.target);
}

}  // namespace

bool is_torch_file(const fs::path& path) {
  const std::string extension = to_lower(path.extension().string());
  return extension == ".nemo" || extension == ".ckpt" || extension == ".pt" || extension == ".pth" ||
         extension == ".bin";
}

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
  use_known_names(tensors, request, report);
  convert_types(tensors, request.dtype);
  write_target(request, tensors);
  report.tensors = static_cast<int64_t>(tensors.size());
  for (const auto& [name, tensor] : tensors) report.elements += tensor.numel();
  return report;
}

}  // namespace redline::train
