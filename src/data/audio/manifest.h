// NeMo's manifests: one JSON object per line with the file, its duration and where a segment lies in it. Kept
// compactly: a million lines cost about 40 MB plus their names.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace redline::data {

class Manifest {
 public:
  // Throws DataError naming file and line: not JSON, no audio_filepath, a wrong type, a negative or absurd number; and
  // for a manifest without lines.
  static Manifest read(const std::filesystem::path& path);
  static Manifest parse(std::string_view text, const std::string& name);
  static std::string read_text(const std::filesystem::path& path);

  size_t size() const { return entries_.size(); }
  std::string_view file(size_t i) const {
    return std::string_view(names_).substr(entries_[i].name_begin, entries_[i].name_size);
  }
  double duration(size_t i) const { return entries_[i].duration; }  // NaN: not given
  double offset(size_t i) const { return entries_[i].offset; }
  int32_t shard(size_t i) const { return entries_[i].shard; }  // -1: not given
  int line(size_t i) const { return entries_[i].line; }

  uint64_t fingerprint() const { return fingerprint_; }  // of the text
  const std::string& name() const { return name_; }

 private:
  struct Entry {
    uint64_t name_begin;
    double duration, offset;
    uint32_t name_size;
    int32_t shard;
    int line;
  };
  std::string name_, names_;
  std::vector<Entry> entries_;
  uint64_t fingerprint_ = 0;
};

}  // namespace redline::data
