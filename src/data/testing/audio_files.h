// Audio files, manifests and tars for the engine's tests.
#pragma once

#include <unistd.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "core/file_ops.h"
#include "data/codecs/audio_writer.h"
#include "data/tar/tar_writer.h"

namespace redline::data::testing_audio {

namespace fs = std::filesystem;

// A folder that goes with the object.
class TempFolder {
 public:
  explicit TempFolder(const std::string& name)
      : path_(fs::temp_directory_path() / (name + "_" + std::to_string(::getpid()))) {
    fs::remove_all(path_);
    fs::create_directories(path_);
  }
  ~TempFolder() {
    std::error_code ignored;
    fs::remove_all(path_, ignored);
  }
  const fs::path& path() const { return path_; }
  fs::path operator/(const std::string& name) const { return path_ / name; }
  void write(const std::string& name, const std::string& bytes) const {
    fs::create_directories((path_ / name).parent_path());
    std::ofstream(path_ / name, std::ios::binary) << bytes;
  }

 private:
  fs::path path_;
};

// A tone whose pitch names the clip.
inline std::vector<float> tone(int number, double seconds, int rate = 16000) {
  std::vector<float> samples(static_cast<size_t>(seconds * rate));
  for (size_t i = 0; i < samples.size(); ++i) {
    samples[i] =
        0.5f *
        static_cast<float>(std::sin(2.0 * 3.141592653589793 * (200.0 + 10.0 * number) * static_cast<double>(i) / rate));
  }
  return samples;
}

inline std::string manifest_line(const std::string& file, double duration, double offset = 0.0, int shard = -1) {
  std::string line = "{\"audio_filepath\": \"" + file + "\"";
  if (duration >= 0.0) line += ", \"duration\": " + std::to_string(duration);
  if (offset > 0.0) line += ", \"offset\": " + std::to_string(offset);
  if (shard >= 0) line += ", \"shard_id\": " + std::to_string(shard);
  return line + "}\n";
}

inline std::span<const std::byte> bytes_of(const std::string& text) { return std::as_bytes(std::span(text)); }

}  // namespace redline::data::testing_audio
