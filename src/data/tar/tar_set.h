// Several tars, each with its index, read in place.
#pragma once

#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "data/audio/audio_clip.h"
#include "data/files/path_guard.h"
#include "data/tar_index.h"

namespace redline::data {

class TarSet {
 public:
  // Opens and indexes; throws DataError naming the tar.
  explicit TarSet(const std::vector<std::filesystem::path>& paths);

  size_t size() const { return tars_.size(); }
  const TarIndex& index(size_t tar) const { return tars_[tar].index; }
  const std::filesystem::path& path(size_t tar) const { return tars_[tar].path; }
  // "audio_3.tar:clip.wav"
  std::string name(size_t tar, size_t member) const;
  // The tar's file: the one kept open, or opened again into `own`; then it must be the one that was indexed. nullptr
  // and `problem` (a sentence) when it cannot be used. Any thread.
  const DataFile* open(size_t tar, DataFile& own, std::string& problem) const;
  // Fills `out` with the member's content, at most `limit_bytes`; the problem in a sentence, or empty. Any thread.
  std::string read(size_t tar, size_t member, std::vector<std::byte>& out, uint64_t limit_bytes) const;
  std::string read(size_t tar, size_t member, std::span<std::byte> out) const;  // as much as `out` holds
  uint64_t fingerprint() const { return fingerprint_; }

 private:
  struct Tar {
    std::filesystem::path path;
    TarIndex index;
    DataFile file;  // closed when there are too many tars to keep open
    uint64_t size = 0;
    int64_t mtime_ns = 0;
  };
  std::vector<Tar> tars_;
  uint64_t fingerprint_ = 0;
};

// A member as audio: decode_clip() of it, large ones read as far as the clip needs them.
ReadResult read_clip(const TarSet& tars, size_t tar, size_t member, const std::string& name, const AudioRequest& clip,
                     measure::StageClock::Slot& slot);

}  // namespace redline::data
