// See snapshot.h. Large CPU tensors are copied in pieces by all intra-op threads; everything else goes through
// Tensor::copy_.
#include "train/checkpoint/snapshot.h"

#include <ATen/Parallel.h>
#include <sys/mman.h>

#include <atomic>
#include <cstring>
#include <functional>
#include <new>

namespace redline::train {
namespace {

constexpr int64_t kCopyPieceBytes = int64_t{1} << 20;

// "pt" is what other readers write and expect of tensors that came from torch.
const std::map<std::string, std::string>& snapshot_metadata() {
  static const std::map<std::string, std::string> metadata = {{"format", "pt"}};
  return metadata;
}

struct CopyPiece {
  const std::byte* from;
  std::byte* to;
  size_t bytes;
};

void fill_snapshot(SnapshotBuffer& buffer, const NamedTensors& tensors) {
  const SafetensorsLayout layout = layout_safetensors(tensors, snapshot_metadata());
  const std::span<std::byte> target = buffer.resize(layout.file_bytes);
  std::memcpy(target.data(), layout.header.data(), layout.header.size());
  std::vector<CopyPiece> pieces;
  for (size_t i = 0; i < tensors.size(); ++i) {
    const torch::Tensor tensor = tensors[i].second.detach();
    const StoredEntry& entry = layout.entries[i];
    if (entry.bytes() == 0) continue;
    std::byte* to = target.data() + layout.header.size() + entry.begin;
    if (!tensor.device().is_cpu() || !tensor.is_contiguous()) {
      torch::from_blob(to, tensor.sizes(), tensor.options().device(torch::kCPU)).copy_(tensor);
      continue;
    }
    const auto* from = static_cast<const std::byte*>(tensor.const_data_ptr());
    for (uint64_t at = 0; at < entry.bytes(); at += kCopyPieceBytes) {
      pieces.push_back({from + at, to + at, std::min<uint64_t>(kCopyPieceBytes, entry.bytes() - at)});
    }
  }
  at::parallel_for(0, static_cast<int64_t>(pieces.size()), 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const CopyPiece& piece = pieces[static_cast<size_t>(i)];
      std::memcpy(piece.to, piece.from, piece.bytes);
    }
  });
}

}  // namespace

SnapshotBuffer::~SnapshotBuffer() {
  if (data_ != nullptr) ::munmap(data_, capacity_);
}

std::span<std::byte> SnapshotBuffer::resize(uint64_t bytes) {
  if (bytes > capacity_) {
    void* fresh = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (fresh == MAP_FAILED) throw std::bad_alloc();
    ::madvise(fresh, bytes, MADV_HUGEPAGE);  // the first copy faults the pages in, on all its threads
    if (data_ != nullptr) ::munmap(data_, capacity_);
    data_ = static_cast<std::byte*>(fresh);
    capacity_ = bytes;
  }
  used_ = bytes;
  return {data_, used_};
}

void Snapshot::take(const CheckpointState& state, bool digest) {
  fill_snapshot(model_, state.model);
  fill_snapshot(optimizer_, state.optimizer);
  state_json_ = state.state_json;
  model_digest_.reset();
  optimizer_digest_.reset();
  if (digest) take_digests();
}

// A SHA-256 cannot be split, so the longest comes first and threads take what is left as they get free.
void Snapshot::take_digests() {
  model_digest_.emplace(FileDigest{kModelFile, model_.bytes().size(), {}, {}});
  optimizer_digest_.emplace(FileDigest{kOptimizerFile, optimizer_.bytes().size(), {}, {}});
  const std::vector<std::function<void()>> jobs = {
      [this] { optimizer_digest_->sha256 = sha256_hex(optimizer_.bytes()); },
      [this] { model_digest_->sha256 = sha256_hex(model_.bytes()); },
      [this] { optimizer_digest_->crc32c = block_checksums(optimizer_.bytes()); },
      [this] { model_digest_->crc32c = block_checksums(model_.bytes()); }};
  std::atomic<size_t> next{0};
  at::parallel_for(0, static_cast<int64_t>(jobs.size()), 1, [&](int64_t, int64_t) {
    for (size_t i = next++; i < jobs.size(); i = next++) jobs[i]();
  });
}

std::vector<GenerationFile> Snapshot::files() const {
  return {{kModelFile, [this](WritableFile& file) { file.write(model_.bytes()); }, model_digest_},
          {kOptimizerFile, [this](WritableFile& file) { file.write(optimizer_.bytes()); }, optimizer_digest_},
          {kStateFile, [this](WritableFile& file) { file.write(std::as_bytes(std::span(state_json_))); }}};
}

std::vector<GenerationFile> live_files(const CheckpointState& state) {
  return {
      {kModelFile, [&state](WritableFile& file) { write_safetensors(file, state.model, snapshot_metadata()); }},
      {kOptimizerFile, [&state](WritableFile& file) { write_safetensors(file, state.optimizer, snapshot_metadata()); }},
      {kStateFile, [&state](WritableFile& file) { file.write(std::as_bytes(std::span(state.state_json))); }}};
}

}  // namespace redline::train
