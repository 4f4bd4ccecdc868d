// Reads and writes safetensors files with checked arithmetic; never unpickles anything.
// Refuses by name: headers over 100 MB or with 100,000 entries, unknown types, lengths and shapes that wrap, overlaps,
// holes, duplicates, trailing bytes, deep JSON. Format: https://github.com/huggingface/safetensors (header length u64
// LE, JSON header, tensor bytes).
#pragma once

#include <torch/torch.h>

#include <filesystem>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "core/file_ops.h"
#include "core/safetensors_header.h"

namespace redline::train {

using NamedTensors = std::vector<std::pair<std::string, torch::Tensor>>;

std::string shape_text(const torch::Tensor& tensor);  // "[2, 3]"
// "The checkpoint's tensor 'x' has the shape [2, 3], this model's [4, 3]: ..."
std::string other_shape(const char* what, const std::string& name, const torch::Tensor& stored,
                        const torch::Tensor& mine);

struct SafetensorsFile {
  std::map<std::string, torch::Tensor> tensors;  // CPU, contiguous, own memory
  std::map<std::string, std::string> metadata;
};

// Throws CheckpointError naming the file and what is wrong; DiskError when it cannot be read.
SafetensorsFile read_safetensors(const std::filesystem::path& path);
// The same in the header's order. With block_sums (one CRC32C per MiB of the file) every block is checked while it is
// read, header included, before anything in it is believed: damage is thrown as DamagedError
// (train/checkpoint/block_reader.h).
NamedTensors read_named_tensors(const std::filesystem::path& path, std::span<const uint32_t> block_sums = {},
                                std::map<std::string, std::string>* metadata = nullptr);

// The header checks alone, on bytes in memory.
struct TensorEntry {
  std::string name;
  torch::ScalarType dtype;
  std::vector<int64_t> shape;
  uint64_t begin, end;  // within the data part
};
std::vector<TensorEntry> parse_safetensors_header(std::string_view header_json, uint64_t data_bytes,
                                                  const std::string& file_name,
                                                  std::map<std::string, std::string>* metadata = nullptr);
torch::ScalarType scalar_type(StoredType type);
StoredType stored_type(
    torch::ScalarType type);  // throws ConfigError for types the format has no name for (quantised, complex128)

// Where each tensor goes in the file: header bytes, then data. The header lists the tensors in the given order; the
// data part has larger element types first, so that readers that view the bytes in place find them aligned.
struct SafetensorsLayout {
  std::string header;
  std::vector<StoredEntry> entries;  // parallel to the tensors
  std::vector<size_t> data_order;    // indices of entries, ascending by begin
  uint64_t file_bytes = 0;
};
SafetensorsLayout layout_safetensors(const NamedTensors& tensors,
                                     const std::map<std::string, std::string>& metadata = {});

// Streams the tensors to `file` (no second copy of a tensor that is contiguous and on the CPU). Does not sync.
void write_safetensors(WritableFile& file, const NamedTensors& tensors,
                       const std::map<std::string, std::string>& metadata = {});
void write_safetensors_atomic(const std::filesystem::path& path, const NamedTensors& tensors,
                              const std::map<std::string, std::string>& metadata = {}, FileOps& ops = posix_file_ops());

}  // namespace redline::train
