// A copy of the state in memory that is kept and reused: taking it is all the loop waits for in an asynchronous save.
// Laid out as the files will be, so the writer thread only streams bytes. Costs the size of the state in memory, once.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "train/checkpoint/generation.h"
#include "train/checkpoint/store.h"

namespace redline::train {

// Memory from the system, not from the tensor allocator: the accounting of training memory must not change when a save
// runs.
class SnapshotBuffer {
 public:
  SnapshotBuffer() = default;
  ~SnapshotBuffer();
  SnapshotBuffer(const SnapshotBuffer&) = delete;
  SnapshotBuffer& operator=(const SnapshotBuffer&) = delete;

  // At least this many bytes; the old content is lost when it grows. Throws std::bad_alloc.
  std::span<std::byte> resize(uint64_t bytes);
  std::span<const std::byte> bytes() const { return {data_, used_}; }

 private:
  std::byte* data_ = nullptr;
  uint64_t capacity_ = 0, used_ = 0;
};

class Snapshot {
 public:
  // Copies with the intra-op threads of the caller. Throws std::bad_alloc when there is no memory for the copy.
  //
  // With `digest`, these threads also take the files' digests. A writer thread that has no core of its own stops one
  // training thread while all the others wait for it, so its time is paid by every core; shared out here, it is paid
  // once.
  void take(const CheckpointState& state, bool digest);
  // The files of the generation, reading from this snapshot: valid until the next take().
  std::vector<GenerationFile> files() const;
  uint64_t bytes() const { return model_.bytes().size() + optimizer_.bytes().size() + state_json_.size(); }

 private:
  void take_digests();

  SnapshotBuffer model_, optimizer_;
  std::string state_json_;
  std::optional<FileDigest> model_digest_, optimizer_digest_;
};

// The same files straight from the live tensors, for synchronous saves.
std::vector<GenerationFile> live_files(const CheckpointState& state);

}  // namespace redline::train
