// Where each member of a tar lies, from its headers alone: ustar, pax (path, size) and GNU long names. Members are then
// read in place with pread; nothing is ever extracted, so names like ../x are only names. Links, devices and folders
// are skipped. The index is kept beside the tar as <tar>.redline.idx (keyed by the tar's size and mtime) when the
// folder is writable.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "data/files/path_guard.h"

namespace redline::data {

class TarIndex {
 public:
  struct Member {
    std::string_view name;
    uint64_t offset = 0, size = 0;  // of the content
  };
  // Fills `out` from `offset`; false when it cannot (used by scan; a memory span in tests and fuzzing).
  using ReadAt = std::function<bool(uint64_t offset, std::span<std::byte> out)>;

  // Throws DataError naming `tar_name` and the offset: bad checksum, cut off, size that wraps or passes the end.
  static TarIndex scan(const ReadAt& read_at, uint64_t tar_bytes, const std::string& tar_name);
  // From the side file when it fits the tar, else by scan; then tries to write the side file (failure is not an error).
  static TarIndex load(const DataFile& tar, const std::filesystem::path& tar_path, bool use_cache = true);

  size_t size() const { return entries_.size(); }
  Member member(size_t i) const;
  std::optional<size_t> find(std::string_view name) const;  // the last member of that name, as tar does
  uint64_t fingerprint() const;                             // of names, offsets and sizes

  std::string serialize(uint64_t tar_bytes, int64_t tar_mtime_ns) const;
  // nullopt when the bytes are not an index of a tar with this size and mtime.
  static std::optional<TarIndex> deserialize(std::string_view bytes, uint64_t tar_bytes, int64_t tar_mtime_ns);

 private:
  struct Entry {
    uint64_t offset, size;
    uint64_t name_begin, name_size;
  };
  void add(std::string_view name, uint64_t offset, uint64_t size);
  void build_lookup();
  std::string_view name_of(const Entry& entry) const {
    return std::string_view(names_).substr(entry.name_begin, entry.name_size);
  }

  std::string names_;
  std::vector<Entry> entries_;
  std::vector<uint32_t> lookup_;  // hash table of entry number + 1; 0 = free; the last of equal names
};

// WebDataset: members that share a path up to the first dot of the base name are one sample; "a/b.tar.gz" is key "a/b",
// extension "tar.gz" (lower case). Order of first appearance; members must be adjacent in the WebDataset format, others
// are grouped all the same.
struct WebSample {
  std::string_view key;
  std::vector<std::pair<std::string, size_t>> parts;  // extension, member number
};
std::vector<WebSample> group_by_stem(const TarIndex& index);

}  // namespace redline::data
