#include "models/convnext/embedding/projector.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <span>

#include "core/file_ops.h"
#include "core/safetensors_header.h"
#include "core/strings.h"

namespace redline::models::embedding {

namespace {

constexpr const char* kTensors = "tensors.tsv";
constexpr const char* kMetadata = "metadata.tsv";

std::string vectors_table(const EmbeddingSet& set) {
  const torch::Tensor vectors = set.vectors.to(torch::kFloat32).contiguous();
  const float* value = vectors.const_data_ptr<float>();
  fmt::memory_buffer text;
  for (int64_t i = 0; i < set.size(); ++i)
    for (int64_t j = 0; j < set.width(); ++j)
      fmt::format_to(std::back_inserter(text), "{:.7g}{}", *value++, j + 1 < set.width() ? '\t' : '\n');
  return fmt::to_string(text);
}

// One column has no heading, several have.
std::string labels_table(const EmbeddingSet& set) {
  std::string text = set.ids.empty() ? "" : "label\tsample\n";
  for (size_t i = 0; i < set.labels.size(); ++i)
    text += set.ids.empty() ? fmt::format("{}\n", set.labels[i]) : fmt::format("{}\t{}\n", set.labels[i], set.ids[i]);
  return text;
}

// What lies there, of this call and earlier ones, also of a run before a resume.
std::string list_of(const std::filesystem::path& log_folder) {
  std::vector<std::pair<std::string, std::string>> found;  // step, tag
  std::error_code absent;
  for (const auto& step : std::filesystem::directory_iterator(log_folder, absent)) {
    const std::string name = step.path().filename().string();
    if (!step.is_directory(absent) || !parse_int(name)) continue;
    for (const auto& tag : std::filesystem::directory_iterator(step.path(), absent))
      if (std::filesystem::exists(tag.path() / kTensors, absent))
        found.emplace_back(name, tag.path().filename().string());
  }
  std::sort(found.begin(), found.end());
  std::string text;
  for (const auto& [step, tag] : found)
    text += fmt::format("embeddings {{\n  tensor_name: {0}\n  tensor_path: {1}\n  metadata_path: {2}\n}}\n",
                        json_quote(tag + ":" + step), json_quote(step + "/" + tag + "/" + kTensors),
                        json_quote(step + "/" + tag + "/" + kMetadata));
  return text;
}

}  // namespace

void write_projector(const std::filesystem::path& log_folder, int64_t step, const std::string& tag,
                     const EmbeddingSet& set) {
  const std::filesystem::path folder = log_folder / fmt::format("{:05d}", step) / tag;
  std::filesystem::create_directories(folder);
  write_file_atomic(folder / kMetadata, labels_table(set));
  write_file_atomic(folder / kTensors, vectors_table(set));
  write_file_atomic(log_folder / "projector_config.pbtxt", list_of(log_folder));
}

void save_embeddings(const std::filesystem::path& file, const EmbeddingSet& set) {
  const torch::Tensor vectors = set.vectors.to(torch::kFloat32).contiguous();
  std::vector<StoredEntry> entries(3);
  entries[0] = {"embeddings", StoredType::F32, {set.size(), set.width()}, 0, 0};
  entries[1] = {"labels", StoredType::I64, {set.size()}, 0, 0};
  entries[2] = {"ids", StoredType::I64, {static_cast<int64_t>(set.ids.size())}, 0, 0};
  const uint64_t data_bytes = place_entries(entries);
  std::string bytes = header_bytes(entries, {});
  const size_t begin = bytes.size();
  bytes.resize(begin + static_cast<size_t>(data_bytes));
  const auto put = [&](const StoredEntry& entry, const void* from) {
    if (entry.bytes() > 0)
      std::memcpy(bytes.data() + begin + static_cast<size_t>(entry.begin), from, static_cast<size_t>(entry.bytes()));
  };
  put(entries[0], vectors.const_data_ptr<float>());
  put(entries[1], set.labels.data());
  put(entries[2], set.ids.data());
  std::filesystem::create_directories(file.parent_path());
  write_file_atomic(file, bytes);
}

}  // namespace redline::models::embedding
