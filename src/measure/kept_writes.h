// Log writes that the disk refused (full, over quota, an I/O error), kept in memory and tried again: a log line is not
// worth a training run. Bounded over the whole process; past the bound the oldest are dropped and counted. One warning
// when it begins, one line when all is written. Threads: any thread may call.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <mutex>
#include <string>

#include "measure/append_file.h"

namespace redline::measure {

inline constexpr int64_t kMostKeptBytes = int64_t{64} << 20;

class KeptWrites {
 public:
  explicit KeptWrites(int64_t most_bytes = kMostKeptBytes);
  ~KeptWrites();  // what still waits is lost; the owner retries and says so before
  KeptWrites(const KeptWrites&) = delete;
  KeptWrites& operator=(const KeptWrites&) = delete;

  // Runs `write`, which writes its `bytes` whole or not at all and throws DiskError. When it does, or while earlier
  // ones wait (tried again once a second), it is kept; the order stays.
  void put(int64_t bytes, std::function<void()> write);
  void retry();  // now, as far as the disk lets us

  struct Unwritten {
    int64_t waiting = 0, dropped = 0;  // writes
    bool any() const { return waiting + dropped > 0; }
  };
  Unwritten unwritten() const;

 private:
  struct Waiting {
    int64_t bytes;
    std::function<void()> write;
  };
  void retry_locked();
  void keep(int64_t bytes, std::function<void()> write);
  void give_back(int64_t bytes);

  mutable std::mutex mutex_;
  int64_t most_bytes_, dropped_ = 0, last_try_ns_ = 0;
  std::deque<Waiting> waiting_;
};

// At the end of a run: tries everything that waits anywhere in the process, and says what is still not written.
KeptWrites::Unwritten retry_kept_writes();

// A log file whose lines wait for the disk. Opening it still throws DiskError: a run that cannot write is refused
// before it starts.
class KeptFile {
 public:
  explicit KeptFile(const std::filesystem::path& path, const char* point = "run_record.write") : file_(path, point) {}
  void append(std::string bytes);
  void retry() { kept_.retry(); }
  KeptWrites::Unwritten unwritten() const { return kept_.unwritten(); }
  AppendFile& file() { return file_; }  // for what may throw: headers, cutting a torn end, sync

 private:
  AppendFile file_;
  KeptWrites kept_;
};

}  // namespace redline::measure
