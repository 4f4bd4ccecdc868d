#include "tune/experiments/cold_files.h"

#include <fcntl.h>
#include <unistd.h>

namespace redline::tune {

namespace {

namespace fs = std::filesystem;

void add_files(const fs::path& root, std::vector<fs::path>& files, size_t most) {
  std::error_code error;
  if (fs::is_regular_file(root, error)) {
    files.push_back(root);
    return;
  }
  for (auto at = fs::recursive_directory_iterator(root, fs::directory_options::skip_permission_denied, error);
       !error && at != fs::recursive_directory_iterator() && files.size() < most; at.increment(error))
    if (at->is_regular_file(error)) files.push_back(at->path());
}

}  // namespace

std::vector<fs::path> data_files(const data::DatasetConfig& config, size_t most) {
  std::vector<fs::path> files;
  const auto add = [&](const config::Node& node, const char* key, bool folder_too) {
    if (node.is_null()) return;
    for (const auto& part : data::name_lists(node, key))
      for (const std::string& name : part)
        add_files(folder_too ? fs::path(name).parent_path() : fs::path(name), files, most);
  };
  add(config.manifest_filepath, "manifest_filepath", true);
  add(config.path, "path", false);
  add(config.tarred_audio_filepaths, "tarred_audio_filepaths", false);
  if (config.synth) {
    const fs::path made = data::synthesize_cached(*config.synth, config.cache_dir).train;
    add_files(fs::is_directory(made) ? made : made.parent_path(), files, most);
  }
  return files;
}

size_t drop_from_page_cache(const std::vector<fs::path>& files) {
  size_t dropped = 0;
  for (const fs::path& file : files) {
    const int fd = ::open(file.c_str(), O_RDONLY | O_CLOEXEC);
    if (fd < 0) continue;
    ::fdatasync(fd);  // a page that is still to be written stays
    dropped += ::posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED) == 0;
    ::close(fd);
  }
  return dropped;
}

}  // namespace redline::tune
