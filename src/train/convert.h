// Weights from and to the formats of other projects. Torch pickles (.nemo, .ckpt, .pt, .pth, .bin) pass through
// python/convert.py in a child process; this process only ever reads safetensors. Names stay the reference project's:
// tasks use them themselves.
#pragma once

#include <torch/torch.h>

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace redline::train {

struct ConvertRequest {
  std::filesystem::path source;  // a torch file, a .nemo file, a .safetensors file, a generation or a run directory
  std::filesystem::path target;  // .safetensors, .pt/.pth/.ckpt or .nemo
  std::string key;               // the dictionary inside a torch file, e.g. "model_ema"; empty: looked for
  std::filesystem::path config;  // model_config.yaml for a .nemo target
  std::string config_text;       // the same as text, where there is no such file
  std::vector<std::pair<std::string, std::string>>
      rename_prefixes;  // "module." -> ""; the first that fits a name is applied
  // Names of a project we know -> ours, given all names of the file (after the prefixes); may be empty. A tensor whose
  // new name is empty is left out.
  std::function<std::map<std::string, std::string>(const std::vector<std::string>&)> known_names;
  // What a renamed tensor, given its old name, is under the new one; may be empty.
  std::function<torch::Tensor(const std::string& name, const torch::Tensor& tensor)> known_order;
  std::string dtype;  // "F32", "F16", "BF16": floating tensors are converted; empty: as they are
  bool ema = false;   // of a checkpoint: the averaged weights instead of the last ones
  // Of the child that handles torch files. 0: from the size of what it reads (eight times, at least 2 GiB; ten minutes
  // and a second for each 20 MB).
  int64_t memory_bytes = 0;
  double timeout_seconds = 0;
  bool allow_network = false;  // convert also where the child's network cannot be cut off
};

struct ConvertReport {
  int64_t tensors = 0, elements = 0, renamed = 0;
  std::vector<std::string> skipped;      // entries that are no tensors
  std::vector<std::string> left_out;     // tensors that a known project's names have no place for
  std::filesystem::path config_written;  // the YAML of a .nemo source, beside the target
};

// By its ending: .nemo, .ckpt, .pt, .pth or .bin.
bool is_torch_file(const std::filesystem::path& path);

// Throws CheckpointError, ConfigError or DeviceError; the target appears whole or not at all.
ConvertReport convert_weights(const ConvertRequest& request);

// The interpreter and script: REDLINE_PYTHON, else the project's .venv, else python3, with its whole path (the child
// does not get our PATH); REDLINE_PYTHON_DIR, else beside the program or in the source tree it was built from.
std::string python_program();
std::filesystem::path python_script(const std::string& name);

}  // namespace redline::train
