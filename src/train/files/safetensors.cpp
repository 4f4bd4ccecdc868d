// Tensors to and from safetensors files. Reading allocates all tensors first and lets threads fill them with pread: no
// buffer in between and no mapping, whose page faults would turn a shrinking file into a crash.
#include "train/files/safetensors.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include <unistd.h>

#include "core/check.h"
#include "core/error.h"
#include "train/checkpoint/block_reader.h"

namespace redline::train {

std::string shape_text(const torch::Tensor& tensor) {
  std::string text = "[";
  for (int64_t dim : tensor.sizes()) {
    if (text.size() > 1) text += ", ";
    text += std::to_string(dim);
  }
  return text + "]";
}

std::string other_shape(const char* what, const std::string& name, const torch::Tensor& stored,
                        const torch::Tensor& mine) {
  return fmt::format(
      "The checkpoint's {} '{}' has the shape {}, this model's {}: it is of a model of another size. Use the settings "
      "it "
      "was trained with, or another run directory.",
      what, name, shape_text(stored), shape_text(mine));
}
namespace {

struct TypePair {
  StoredType stored;
  torch::ScalarType scalar;
};
constexpr TypePair kTypePairs[] = {{StoredType::Bool, torch::kBool},
                                   {StoredType::U8, torch::kUInt8},
                                   {StoredType::I8, torch::kInt8},
                                   {StoredType::F8E4M3, torch::kFloat8_e4m3fn},
                                   {StoredType::F8E5M2, torch::kFloat8_e5m2},
                                   {StoredType::F8E8M0, torch::kFloat8_e8m0fnu},
                                   {StoredType::I16, torch::kInt16},
                                   {StoredType::U16, torch::kUInt16},
                                   {StoredType::F16, torch::kFloat16},
                                   {StoredType::BF16, torch::kBFloat16},
                                   {StoredType::I32, torch::kInt32},
                                   {StoredType::U32, torch::kUInt32},
                                   {StoredType::F32, torch::kFloat32},
                                   {StoredType::I64, torch::kInt64},
                                   {StoredType::U64, torch::kUInt64},
                                   {StoredType::F64, torch::kFloat64},
                                   {StoredType::C64, torch::kComplexFloat}};

std::span<std::byte> tensor_bytes(const torch::Tensor& tensor) {
  return {static_cast<std::byte*>(tensor.data_ptr()), tensor.nbytes()};
}

// Length and JSON of the header, with the blocks they lie in checked first when there are sums.
std::vector<std::byte> read_header(const InputFile& file, std::span<const uint32_t> block_sums) {
  const std::string name = file.path().string();
  if (file.bytes() < 8) {
    throw CheckpointError(name + ": safetensors header refused: the file has " + std::to_string(file.bytes()) +
                          " bytes, too few for the length of a header. It is truncated; use another copy");
  }
  auto read_start = [&](uint64_t wanted) {
    std::vector<std::byte> start(wanted);
    if (block_sums.empty()) {
      file.read(0, start);
    } else {  // whole blocks, since only those have sums
      start.resize(std::min(block_count(wanted) * kBlockBytes, file.bytes()));
      const FileSegment segment{0, start};
      read_segments(file, {&segment, 1}, block_sums.first(block_count(start.size())), 1);
    }
    return start;
  };
  std::vector<std::byte> start = read_start(8);
  const std::span<const uint8_t, 8> length_bytes(reinterpret_cast<const uint8_t*>(start.data()), 8);
  const uint64_t header_end = 8 + parse_header_length(length_bytes, file.bytes(), name);
  if (start.size() < header_end) start = read_start(header_end);
  start.resize(header_end);
  return start;
}

void write_tensor(WritableFile& file, const torch::Tensor& tensor) {
  if (tensor.numel() == 0) return;
  const torch::Tensor plain = tensor.detach().to(torch::kCPU).contiguous();
  file.write(tensor_bytes(plain));
}

}  // namespace

torch::ScalarType scalar_type(StoredType type) { return kTypePairs[static_cast<size_t>(type)].scalar; }

StoredType stored_type(torch::ScalarType type) {
  for (const TypePair& pair : kTypePairs) {
    if (pair.scalar == type) return pair.stored;
  }
  throw ConfigError(std::string("Tensors of type ") + c10::toString(type) +
                    " cannot be stored as safetensors; convert them to a plain type first.");
}

std::vector<TensorEntry> parse_safetensors_header(std::string_view header_json, uint64_t data_bytes,
                                                  const std::string& file_name,
                                                  std::map<std::string, std::string>* metadata) {
  StoredHeader header = parse_stored_header(header_json, data_bytes, file_name);
  std::vector<TensorEntry> entries;
  for (StoredEntry& entry : header.entries) {
    entries.push_back({std::move(entry.name), scalar_type(entry.type), std::move(entry.shape), entry.begin, entry.end});
  }
  if (metadata != nullptr) *metadata = std::move(header.metadata);
  return entries;
}

NamedTensors read_named_tensors(const std::filesystem::path& path, std::span<const uint32_t> block_sums,
                                std::map<std::string, std::string>* metadata) {
  const InputFile file(path);
  if (!block_sums.empty() && block_sums.size() != block_count(file.bytes())) {
    throw DamagedError({path, std::min<uint64_t>(block_count(file.bytes()), block_sums.size()),
                        "the file has another size than its checksums"});
  }
  std::vector<std::byte> header_part = read_header(file, block_sums);
  const uint64_t data_begin = header_part.size();
  const std::string_view json(reinterpret_cast<const char*>(header_part.data()) + 8, header_part.size() - 8);
  StoredHeader header = parse_stored_header(json, file.bytes() - data_begin, path.string());

  NamedTensors tensors;
  std::vector<FileSegment> segments;
  tensors.reserve(header.entries.size());
  segments.reserve(header.entries.size() + 1);
  if (!block_sums.empty()) segments.push_back({0, header_part});
  for (StoredEntry& entry : header.entries) {
    torch::Tensor tensor =
        torch::empty(entry.shape, torch::TensorOptions().dtype(scalar_type(entry.type)).device(torch::kCPU));
    REDLINE_CHECK(tensor.nbytes() == entry.bytes(), "the header check compared type and shape with the offsets");
    if (entry.bytes() != 0) segments.push_back({data_begin + entry.begin, tensor_bytes(tensor)});
    tensors.emplace_back(std::move(entry.name), std::move(tensor));
  }
  std::sort(segments.begin(), segments.end(),
            [](const FileSegment& a, const FileSegment& b) { return a.offset < b.offset; });
  read_segments(file, segments, block_sums);
  if (metadata != nullptr) *metadata = std::move(header.metadata);
  return tensors;
}

SafetensorsFile read_safetensors(const std::filesystem::path& path) {
  SafetensorsFile file;
  for (auto& [name, tensor] : read_named_tensors(path, {}, &file.metadata))
    file.tensors.emplace(name, std::move(tensor));
  return file;
}

SafetensorsLayout layout_safetensors(const NamedTensors& tensors, const std::map<std::string, std::string>& metadata) {
  SafetensorsLayout layout;
  layout.entries.reserve(tensors.size());
  for (const auto& [name, tensor] : tensors) {
    REDLINE_CHECK(tensor.defined() && tensor.layout() == torch::kStrided, "only dense tensors are stored");
    layout.entries.push_back({name, stored_type(tensor.scalar_type()), tensor.sizes().vec(), 0, 0});
  }
  const uint64_t data_bytes = place_entries(layout.entries);
  layout.header = header_bytes(layout.entries, metadata);
  layout.file_bytes = layout.header.size() + data_bytes;
  layout.data_order.resize(tensors.size());
  std::iota(layout.data_order.begin(), layout.data_order.end(), size_t{0});
  std::stable_sort(layout.data_order.begin(), layout.data_order.end(),
                   [&](size_t a, size_t b) { return layout.entries[a].begin < layout.entries[b].begin; });
  return layout;
}

void write_safetensors(WritableFile& file, const NamedTensors& tensors,
                       const std::map<std::string, std::string>& metadata) {
  const SafetensorsLayout layout = layout_safetensors(tensors, metadata);
  file.write(std::as_bytes(std::span(layout.header)));
  for (size_t i : layout.data_order) write_tensor(file, tensors[i].second);
}

void write_safetensors_atomic(const std::filesystem::path& path, const NamedTensors& tensors,
                              const std::map<std::string, std::string>& metadata, FileOps& ops) {
  write_file_atomic(
      path, [&](WritableFile& file) { write_safetensors(file, tensors, metadata); }, ops);
}

}  // namespace redline::train
