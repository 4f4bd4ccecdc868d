// A file that keeps its bytes in a string.
#pragma once

#include <string>

#include "core/file_ops.h"

namespace redline {

class StringFile final : public WritableFile {
 public:
  explicit StringFile(std::string* out) : out_(out) {}
  void write(std::span<const std::byte> bytes) override {
    out_->append(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  }
  void sync() override {}
  void close() override {}

 private:
  std::string* out_;
};

}  // namespace redline
