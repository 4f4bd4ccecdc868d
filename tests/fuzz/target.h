// A reader under test: fed bytes that may be anything, it must return. What it finds wrong with the bytes is its own
// affair; what counts here is that it neither reads nor writes where it must not (AddressSanitizer), computes nonsense
// (UBSan), takes unbounded memory or time, nor accepts a file and then breaks what it promises (require()). A target
// goes to the end of its path: to samples, tensors, rows, a resolved job, not to the first header that is believed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace redline::fuzz {

struct Target {
  std::string name;
  // Returns true when the bytes were accepted: the planted bugs lie behind that.
  std::function<bool(std::span<const std::byte>)> run;
  std::function<std::vector<std::string>()> seeds;
  // Makes lengths and checksums right again after a mutation, or the reader would never look further; may be empty.
  std::function<void(std::string&)> repair{};
};

inline void require(bool condition, const char* what) {
  if (condition) return;
  std::fprintf(stderr, "promise broken: %s\n", what);
  std::abort();
}

inline std::string_view text_of(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

std::string fixture(const std::string& path);  // below tests/fixtures

std::string memory_folder();  // a new folder in memory; tests/fuzz/run removes it, however this process ends

// Bytes as a file that a path leads to, gone with the object. In memory: a campaign opens millions.
class MemoryFile {
 public:
  explicit MemoryFile(std::string_view bytes);
  ~MemoryFile();
  MemoryFile(const MemoryFile&) = delete;
  MemoryFile& operator=(const MemoryFile&) = delete;
  std::string path() const { return "/proc/self/fd/" + std::to_string(fd_); }

 private:
  int fd_;
};

std::vector<Target> audio_targets();
std::vector<Target> image_targets();
std::vector<Target> tar_targets();
std::vector<Target> parquet_targets();
std::vector<Target> text_targets();
std::vector<Target> nuscenes_targets();
std::vector<Target> record_targets();
std::vector<Target> stored_targets();
std::vector<Target> config_targets();
std::vector<Target> job_targets();  // with LibTorch: a program of their own

}  // namespace redline::fuzz
