#include "data/audio/manifest_source.h"

#include <algorithm>
#include <cmath>

#include "core/error.h"
#include "core/hash.h"
#include "core/log.h"
#include "core/strings.h"

namespace redline::data {

namespace {

constexpr uint64_t kHeadBytes = 64 << 10;

// A relative name that climbs above where it starts.
bool climbs_out(std::string_view file) {
  int depth = 0;
  for (const auto& part : std::filesystem::path(file)) {
    if (part == "..")
      --depth;
    else if (part != "." && !part.empty())
      ++depth;
    if (depth < 0) return true;
  }
  return false;
}

}  // namespace

ManifestSource::ManifestSource(const std::vector<std::filesystem::path>& manifests, const ManifestOptions& options)
    : options_(options) {
  fingerprint_ = hash64(audio_fingerprint(options_.audio));
  for (const auto& path : manifests) {
    manifests_.push_back(Manifest::read(path));
    const Manifest& manifest = manifests_.back();
    std::filesystem::path folder = std::filesystem::absolute(path).parent_path();
    if (options_.data_root.empty()) check_paths(manifest);
    guards_.push_back(options_.data_root.empty()
                          ? std::make_unique<PathGuard>(folder, options_.allow_absolute)
                          : std::make_unique<PathGuard>(options_.data_root, folder, options_.allow_absolute));
    begins_.push_back(begins_.back() + manifest.size());
    fingerprint_ = mix_key(fingerprint_, manifest.fingerprint());
  }
  durations_.resize(manifests_.size());
}

// Said at once for the whole manifest; what only the file system can tell (links, FIFOs) is refused when the file is
// opened.
void ManifestSource::check_paths(const Manifest& manifest) const {
  for (size_t i = 0; i < manifest.size(); ++i) {
    const std::string_view file = manifest.file(i);
    const bool absolute = file.starts_with('/');
    if (absolute ? !options_.allow_absolute : file.find("..") != std::string_view::npos && climbs_out(file)) {
      throw DataError(printable(manifest.name()) + ":" + std::to_string(manifest.line(i)) + ": '" + printable(file) +
                      "' is " +
                      (absolute ? "an absolute path, which allow_absolute: false forbids"
                                : "outside the manifest's folder; set data_root to the folder that holds both") +
                      ".");
    }
  }
}

ManifestSource::Place ManifestSource::place(int64_t index) const {
  const auto after = std::upper_bound(begins_.begin(), begins_.end(), static_cast<uint64_t>(index));
  const size_t manifest = static_cast<size_t>(after - begins_.begin()) - 1;
  return {manifest, static_cast<size_t>(static_cast<uint64_t>(index) - begins_[manifest])};
}

std::string ManifestSource::name(int64_t index) const {
  const Place at = place(index);
  std::string text(manifests_[at.manifest].file(at.entry));
  if (manifests_[at.manifest].offset(at.entry) > 0.0)
    text += " at " + format_double(manifests_[at.manifest].offset(at.entry)) + " s";
  return text;
}

ReadResult ManifestSource::read(int64_t index, measure::StageClock::Slot& slot) const {
  const Place at = place(index);
  const Manifest& manifest = manifests_[at.manifest];
  return read_clip(index, options_.audio.clip(manifest.offset(at.entry), manifest.duration(at.entry)), slot);
}

ReadResult ManifestSource::read_window(int64_t index, double begin_seconds, double seconds,
                                       measure::StageClock::Slot& slot) const {
  const Place at = place(index);
  const double offset = manifests_[at.manifest].offset(at.entry) + begin_seconds;
  return read_clip(index, options_.audio.clip(offset, seconds), slot);
}

ReadResult ManifestSource::read_clip(int64_t index, const AudioRequest& clip, measure::StageClock::Slot& slot) const {
  const Place at = place(index);
  const Manifest& manifest = manifests_[at.manifest];
  const std::string sample_name = name(index);
  std::optional<DataFile> file;
  std::vector<std::byte>& buffer = thread_bytes();
  {
    const measure::StageScope scope(slot, measure::Stage::Read);
    BadSample bad;
    file = open_sample(*guards_[at.manifest], manifest.file(at.entry), sample_name, bad);
    if (!file) return bad;
    if (file->size() < kReadInPartsBytes) {
      if (!file->read_all(buffer)) return BadSample{sample_name, "The file could not be read to its end."};
      count_bytes(slot, buffer.size());
    }
  }
  const bool in_parts = file->size() >= kReadInPartsBytes;
  return decode_clip(in_parts ? AudioInput(*file, 0, file->size()) : AudioInput(buffer), sample_name, clip, slot);
}

uint64_t ManifestSource::content_key(int64_t index) const {
  const Place at = place(index);
  const Manifest& manifest = manifests_[at.manifest];
  uint64_t key = hash64(manifest.file(at.entry), hash64(audio_fingerprint(options_.audio)));
  const double range[2] = {manifest.offset(at.entry), manifest.duration(at.entry)};
  key = hash64(std::as_bytes(std::span(range)), key);
  const OpenResult opened = guards_[at.manifest]->open(manifest.file(at.entry));
  if (const auto* file = std::get_if<DataFile>(&opened))
    key = mix_key(mix_key(key, file->size()), static_cast<uint64_t>(file->mtime_ns()));
  return key;
}

double ManifestSource::measure_one(const Place& at) const {
  const Manifest& manifest = manifests_[at.manifest];
  const OpenResult opened = guards_[at.manifest]->open(manifest.file(at.entry));
  const auto* file = std::get_if<DataFile>(&opened);
  if (file == nullptr) return std::numeric_limits<double>::quiet_NaN();
  std::vector<std::byte>& head = thread_bytes();
  head.resize(std::min(kHeadBytes, file->size()));
  if (!file->read_at(0, head)) return std::numeric_limits<double>::quiet_NaN();
  if (length_needs_whole_file(head) && !file->read_all(head)) return std::numeric_limits<double>::quiet_NaN();
  return measure_clip(head, file->size(), manifest.offset(at.entry));
}

void ManifestSource::measure_missing() const {
  for (size_t m = 0; m < manifests_.size(); ++m) {
    const Manifest& manifest = manifests_[m];
    std::vector<size_t> missing;
    for (size_t i = 0; i < manifest.size(); ++i) {
      if (std::isnan(manifest.duration(i))) missing.push_back(i);
    }
    if (missing.empty()) continue;
    const std::filesystem::path kept = manifest.name() + ".redline.durations";
    durations_[m] = load_durations(kept, manifest.fingerprint(), manifest.size());
    if (!durations_[m].empty()) continue;
    log_info(std::to_string(missing.size()) + " entries of " + manifest.name() +
             " have no duration: reading it from the files' headers.");
    const std::vector<double> found = measure_all(missing.size(), [&](size_t i) {
      return measure_one({m, missing[i]});
    });
    durations_[m].assign(manifest.size(), 0.0);
    for (size_t i = 0; i < missing.size(); ++i) durations_[m][missing[i]] = found[i];
    store_durations(kept, manifest.fingerprint(), durations_[m]);
  }
}

double ManifestSource::length(int64_t index) const {
  const Place at = place(index);
  const double duration = manifests_[at.manifest].duration(at.entry);
  if (!std::isnan(duration)) return duration;
  std::call_once(measured_, [this] { measure_missing(); });
  return durations_[at.manifest][at.entry];
}

}  // namespace redline::data
