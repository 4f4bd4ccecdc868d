// A folder of files for one test, and the message of the ConfigError that some work throws.
#pragma once

#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <string>

#include "core/error.h"
#include "core/file_ops.h"

namespace redline::config::testing {

class Folder {
 public:
  Folder() {
    std::string pattern = (std::filesystem::temp_directory_path() / "redline-config-XXXXXX").string();
    path_ = ::mkdtemp(pattern.data());
  }
  ~Folder() { std::filesystem::remove_all(path_); }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;

  std::filesystem::path write(const std::string& name, std::string_view text) const {
    std::filesystem::create_directories((path_ / name).parent_path());
    write_file_atomic(path_ / name, text);
    return path_ / name;
  }
  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

// The sentence of the ConfigError, without the folder's name in it; "no error" when there was none.
template <class Work>
std::string config_error(Work work, const std::filesystem::path& folder = {}) {
  try {
    work();
  } catch (const ConfigError& error) {
    std::string text = error.what();
    const std::string prefix = folder.empty() ? "" : folder.string() + "/";
    for (size_t at = text.find(prefix); !prefix.empty() && at != std::string::npos; at = text.find(prefix))
      text.erase(at, prefix.size());
    return text;
  }
  return "no error";
}

}  // namespace redline::config::testing
