// The files of a checkpoint as far as they go without LibTorch: tensors into memory, the manifest, the loop's state.
#include <algorithm>
#include <cmath>
#include <cstring>

#include "core/error.h"
#include "core/hash.h"
#include "core/safetensors_header.h"
#include "target.h"
#include "train/checkpoint/block_reader.h"
#include "train/checkpoint/manifest.h"
#include "train/loop/loop_state.h"

namespace redline::fuzz {

namespace {

using namespace redline::train;

StoredHeader parse_tensors(std::string_view bytes) {
  if (bytes.size() < 8) throw CheckpointError("too short");
  const std::span<const uint8_t, 8> length(reinterpret_cast<const uint8_t*>(bytes.data()), 8);
  const uint64_t header = parse_header_length(length, bytes.size(), "fuzz");
  return parse_stored_header(bytes.substr(8, header), bytes.size() - 8 - header, "fuzz");
}

// Stated apart from the parser: sizes agree, and every byte has exactly one owner.
void check_owners(const StoredHeader& header) {
  std::vector<uint8_t> owners;
  for (const StoredEntry& entry : header.entries) {
    __extension__ using Wide = unsigned __int128;
    Wide wanted = stored_type_bytes(entry.type);
    for (int64_t dim : entry.shape) wanted *= static_cast<Wide>(dim);
    require(wanted == entry.bytes(), "type and shape give the size of the data");
    if (owners.size() < entry.end) owners.resize(entry.end);
    for (uint64_t i = entry.begin; i < entry.end; ++i) require(owners[i]++ == 0, "no byte has two owners");
  }
  for (uint8_t count : owners) require(count == 1, "no byte is without an owner");
}

// The way of a reader: buffers of exactly the claimed sizes, filled from the file.
void fill_buffers(const StoredHeader& header, std::string_view bytes) {
  uint64_t data_bytes = 0;
  std::vector<const StoredEntry*> order;
  for (const StoredEntry& entry : header.entries) {
    data_bytes = std::max(data_bytes, entry.end);
    if (entry.bytes() > 0) order.push_back(&entry);
  }
  std::sort(order.begin(), order.end(), [](const auto* a, const auto* b) { return a->begin < b->begin; });
  std::vector<std::vector<std::byte>> buffers;
  for (const StoredEntry* entry : order) buffers.emplace_back(entry->bytes());
  std::vector<FileSegment> segments;
  for (size_t i = 0; i < order.size(); ++i)
    segments.push_back({bytes.size() - data_bytes + order[i]->begin, buffers[i]});
  const MemoryFile stored(bytes);
  read_segments(InputFile(stored.path()), segments, {}, 1);
  std::string joined;
  for (const auto& buffer : buffers) joined.append(reinterpret_cast<const char*>(buffer.data()), buffer.size());
  require(joined == bytes.substr(bytes.size() - data_bytes), "accepted bytes are read as they are");
}

bool read_tensors(std::span<const std::byte> bytes) {
  try {
    const StoredHeader header = parse_tensors(text_of(bytes));
    check_owners(header);
    fill_buffers(header, text_of(bytes));
    return true;
  } catch (const CheckpointError&) {
    return false;
  }
}

std::vector<std::string> tensors_seeds() {
  std::vector<StoredEntry> entries = {{"layer.0.weight", StoredType::F32, {2, 3}, 0, 0},
                                      {"layer.0.w\xc3\xa9ight", StoredType::BF16, {5}, 0, 0},
                                      {"empty", StoredType::I64, {0, 4}, 0, 0},
                                      {"scalar", StoredType::F64, {}, 0, 0},
                                      {"b", StoredType::Bool, {3}, 0, 0}};
  std::vector<std::string> seeds;
  for (const auto& metadata : {std::map<std::string, std::string>{}, {{"format", "pt"}}}) {
    const uint64_t data_bytes = place_entries(entries);
    seeds.push_back(header_bytes(entries, metadata) + std::string(data_bytes, '\x3f'));
    entries.resize(2);
  }
  return seeds;
}

// Keeps the header's length true, as far as there is a header: up to the last brace.
void repair_tensors(std::string& file) {
  const size_t end = file.rfind('}');
  if (file.size() < 10 || end == std::string::npos || end < 8) return;
  uint64_t length = end + 1 - 8;
  while ((length + 8) % 8 != 0 && 8 + length < file.size() && file[8 + length] == ' ') ++length;
  std::memcpy(file.data(), &length, 8);
}

bool read_manifest_text(std::span<const std::byte> bytes) {
  try {
    const train::Manifest manifest = parse_manifest(text_of(bytes), "fuzz/MANIFEST.json");
    for (const FileDigest& file : manifest.files) {
      require(file.sha256.size() == 64, "a digest has 64 digits");
      require(file.crc32c.size() == block_count(file.bytes), "every block has its sum");
      require(file.name.find('/') == std::string::npos, "a file lies in the generation");
    }
    const std::string stored = manifest_text(manifest);
    require(manifest_text(parse_manifest(stored, "again")) == stored, "a manifest survives being stored");
    return true;
  } catch (const CheckpointError&) {
    return false;
  }
}

std::vector<std::string> manifest_seeds_of_generations() {
  train::Manifest manifest;
  manifest.step = 12;
  manifest.created = "2026-11-15T20:01:02Z";
  std::vector<std::string> seeds = {manifest_text(manifest)};
  manifest.monitor = "val_loss";
  manifest.metric = 0.5;
  manifest.files = {{"state.json", 3, std::string(64, 'a'), {1}},
                    {"model.safetensors", 2 << 20, std::string(64, '0'), {1, 2}}};
  seeds.push_back(manifest_text(manifest));
  return seeds;
}

// The last line again, with the sum of what is before it.
void repair_manifest(std::string& text) {
  const std::string begin = ",\n\"manifest_crc32c\":\"", end = "\"}\n";
  const size_t body = text.rfind(begin);
  if (body == std::string::npos) return;
  char digits[9];
  std::snprintf(digits, sizeof(digits), "%08x", crc32c(std::as_bytes(std::span(text).first(body))));
  text.replace(body, std::string::npos, begin + digits + end);
}

bool read_state(std::span<const std::byte> bytes) {
  try {
    const LoopState state = LoopState::from_json(std::string(text_of(bytes)));
    const std::string stored = state.to_json();
    require(LoopState::from_json(stored).to_json() == stored, "a loop's state survives being stored");
    return true;
  } catch (const CheckpointError&) {
    return false;
  }
}

std::vector<std::string> state_seeds() {
  LoopState state;
  std::vector<std::string> seeds = {state.to_json()};
  state.step = 17;
  state.plan_hash = 0x0123456789abcdef;
  state.early_best = HUGE_VAL;
  state.last_validation = {{"val_loss", 1.5}};
  state.config_hash = identity_text(7);
  state.task_state = "{\"kl_weight\": 0.5}";
  seeds.push_back(state.to_json());
  return seeds;
}

}  // namespace

std::vector<Target> stored_targets() {
  return {{"safetensors", read_tensors, tensors_seeds, repair_tensors},
          {"generation_manifest", read_manifest_text, manifest_seeds_of_generations, repair_manifest},
          {"loop_state", read_state, state_seeds}};
}

}  // namespace redline::fuzz
