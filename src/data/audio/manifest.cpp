#include "data/audio/manifest.h"

#include <cmath>
#include <limits>

#include "core/error.h"
#include "core/hash.h"
#include "core/strings.h"
#include "data/files/json_lines.h"
#include "data/files/path_guard.h"

namespace redline::data {

namespace {

constexpr double kMaxSeconds = 1e9;
constexpr size_t kMaxLineBytes = size_t{16} << 20;
constexpr uint64_t kMaxManifestBytes = uint64_t{1} << 34;

constexpr const char* kManifestIs = "a file with a line {\"audio_filepath\": \"clip.wav\"} for each clip.";

struct Place {
  const std::string& name;
  int line;
  [[noreturn]] void fail(const std::string& problem) const {
    throw DataError(printable(name) + ":" + std::to_string(line) + ": " + problem);
  }
};

double seconds_of(const JsonValue& value, const char* key, const Place& place) {
  if (value.is_null()) return std::numeric_limits<double>::quiet_NaN();
  const auto seconds = value.number();
  if (!seconds) place.fail(std::string(key) + " must be a number of seconds.");
  if (!(*seconds >= 0.0 && *seconds <= kMaxSeconds))
    place.fail(std::string(key) + " is " + format_double(*seconds) + "; expected 0 seconds or more.");
  return *seconds;
}

struct Line {
  std::string file;
  double duration = std::numeric_limits<double>::quiet_NaN(), offset = 0.0;
  int64_t shard = -1;
};

Line read_line(JsonObjectParser& parser, std::string_view text, const Place& place) {
  if (text.size() > kMaxLineBytes)
    place.fail("the line has " + std::to_string(text.size()) + " bytes; at most 16 MiB are read. Is it a manifest?");
  Line line;
  const auto problem = parser.parse(text, [&](std::string_view key, const JsonValue& value) {
    if (key == "audio_filepath" || (key == "audio_filename" && line.file.empty())) {
      if (!value.string()) place.fail("audio_filepath must be one file name (lists of channels are not supported).");
      line.file = *value.string();
    } else if (key == "duration") {
      line.duration = seconds_of(value, "duration", place);
    } else if (key == "offset") {
      line.offset = seconds_of(value, "offset", place);
      if (std::isnan(line.offset)) line.offset = 0.0;
    } else if (key == "shard_id" && !value.is_null()) {
      line.shard = value.whole_number().value_or(-1);
      if (line.shard < 0 || line.shard > INT32_MAX) place.fail("shard_id must be a whole number, 0 or more.");
    }
  });
  if (problem) place.fail(*problem + " This should be " + kManifestIs);
  if (line.file.empty()) place.fail("there is no audio_filepath.");
  if (line.file.find('\0') != std::string::npos) place.fail("audio_filepath holds a zero byte.");
  return line;
}

}  // namespace

Manifest Manifest::parse(std::string_view text, const std::string& name) {
  Manifest manifest;
  manifest.name_ = name;
  manifest.fingerprint_ = hash64(text);
  if (text.starts_with("\xEF\xBB\xBF")) text.remove_prefix(3);
  for_each_json_line(text, [&](JsonObjectParser& parser, std::string_view row, int line) {
    const Line read = read_line(parser, row, Place{name, line});
    manifest.entries_.push_back({manifest.names_.size(), read.duration, read.offset,
                                 static_cast<uint32_t>(read.file.size()), static_cast<int32_t>(read.shard), line});
    manifest.names_ += read.file;
  });
  if (manifest.entries_.empty()) throw DataError("The manifest " + printable(name) + " has no entries.");
  return manifest;
}

std::string Manifest::read_text(const std::filesystem::path& path) {
  std::error_code ignored;
  if (std::filesystem::is_directory(path, ignored))
    throw DataError("The manifest '" + printable(path.string()) + "' is a folder; expected " + kManifestIs);
  const DataFile file = open_user_file(path);
  if (file.size() > kMaxManifestBytes)
    throw DataError("The manifest " + printable(path.string()) + " is larger than 16 GiB.");
  std::string text(file.size(), '\0');
  if (!file.read_at(0, std::as_writable_bytes(std::span(text)))) {
    throw DataError("The manifest " + printable(path.string()) + " cannot be read to its end.");
  }
  return text;
}

Manifest Manifest::read(const std::filesystem::path& path) { return parse(read_text(path), path.string()); }

}  // namespace redline::data
