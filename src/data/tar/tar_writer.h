// Writes deterministic tars: same members, same bytes (mode 0644, owner 0, mtime 0, ustar with pax headers for long or
// non-ASCII names and sizes of 8 GiB and more).
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "core/file_ops.h"

namespace redline::data {

class TarWriter {
 public:
  explicit TarWriter(std::unique_ptr<WritableFile> file) : file_(std::move(file)) {}
  void add(std::string_view name, std::span<const std::byte> content);
  // Two zero blocks, padding to 10 KiB, sync and close. Without it the tar is incomplete.
  void finish();

 private:
  void put(std::string_view bytes);
  std::unique_ptr<WritableFile> file_;
  uint64_t written_ = 0;
};

}  // namespace redline::data
