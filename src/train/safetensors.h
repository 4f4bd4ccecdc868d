// Reads and writes safetensors files with checked arithmetic; never unpickles anything.
// Refuses by name: headers over 100 MB or 100,000 entries, unknown types, lengths and shapes that wrap, overlaps, holes, duplicates,
// trailing bytes, deep JSON. Format: https://github.com/huggingface/safetensors (header length u64 LE, JSON header, tensor bytes).
#pragma once

#include <torch/torch.h>

#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "core/file_ops.h"

namespace redline::train {

using NamedTensors = std::vector<std::pair<std::string, torch::Tensor>>;

struct SafetensorsFile {
  std::map<std::string, torch::Tensor> tensors;  // CPU, contiguous, own memory
  std::map<std::string, std::string> metadata;
};

// Throws CheckpointError naming the file and what is wrong; DiskError when it cannot be read.
SafetensorsFile read_safetensors(const std::filesystem::path& path);
// The header checks alone, on bytes in memory: what the fuzzer and the reader share.
struct TensorEntry {
  std::string name;
  torch::ScalarType dtype;
  std::vector<int64_t> shape;
  uint64_t begin, end;  // within the data part
};
std::vector<TensorEntry> parse_safetensors_header(std::string_view header_json, uint64_t data_bytes, const std::string& file_name,
                                                  std::map<std::string, std::string>* metadata = nullptr);

// Streams the tensors to `file` in the given order (no second copy of a tensor that is contiguous and on the CPU). Does not sync.
void write_safetensors(WritableFile& file, const NamedTensors& tensors, const std::map<std::string, std::string>& metadata = {});
void write_safetensors_atomic(const std::filesystem::path& path, const NamedTensors& tensors,
                              const std::map<std::string, std::string>& metadata = {}, FileOps& ops = posix_file_ops());

}  // namespace redline::train
