// Several tars, each with its index, read in place.
#pragma once

#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "data/path_guard.h"
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
  // Fills `out` with the member's content; false when the tar became shorter. Any thread.
  bool read(size_t tar, size_t member, std::vector<std::byte>& out, uint64_t limit_bytes = UINT64_MAX) const;
  bool read(size_t tar, size_t member, std::span<std::byte> out) const;  // as much as `out` holds
  uint64_t fingerprint() const { return fingerprint_; }

 private:
  struct Tar {
    std::filesystem::path path;
    TarIndex index;
    DataFile file;  // closed when there are too many tars to keep open
  };
  std::vector<Tar> tars_;
  uint64_t fingerprint_ = 0;
};

}  // namespace redline::data
