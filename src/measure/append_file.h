// A file that only grows, for records that must stay readable after a kill at any byte. Each append is one write(2);
// when that fails half way (full disk), the half is cut off again, at the latest before the next append, so that no
// torn line stands between whole ones. Threads: not for several at once.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string_view>

namespace redline::measure {

class AppendFile {
 public:
  // Opens or creates; throws DiskError. `point` names the fault-injection point taken before each write.
  explicit AppendFile(const std::filesystem::path& path, const char* point = "run_record.write");
  ~AppendFile();
  AppendFile(const AppendFile&) = delete;
  AppendFile& operator=(const AppendFile&) = delete;

  void append(std::string_view bytes);
  void truncate(int64_t bytes);
  void sync();  // to the disk, not only to the kernel
  int64_t size() const { return size_; }
  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
  const char* point_;
  int fd_ = -1;
  int64_t size_ = 0;   // of whole appends
  bool torn_ = false;  // a part of a failed append is still behind them
};

// "Writing 'x/steps.bin' failed: No space left on device. Free space ..." as DiskError; `error` is an errno.
[[noreturn]] void throw_disk_error(const std::string& doing, const std::filesystem::path& path, int error);

}  // namespace redline::measure
