// Audio files named by one or more NeMo manifests.
#pragma once

#include <memory>
#include <mutex>
#include <vector>

#include "data/audio/audio_clip.h"
#include "data/audio/manifest.h"
#include "data/files/path_guard.h"
#include "data/source.h"

namespace redline::data {

struct ManifestOptions {
  AudioRequest audio{.target_rate = 16000};
  bool allow_absolute = true;
  std::filesystem::path
      data_root;  // files must lie below it; empty: the manifest's own folder (and, when allowed, absolute names)
};

class ManifestSource : public Source {
 public:
  // Throws DataError for a manifest that cannot be read or that names a file above its root.
  ManifestSource(const std::vector<std::filesystem::path>& manifests, const ManifestOptions& options);

  int64_t size() const override { return static_cast<int64_t>(begins_.back()); }
  ReadResult read(int64_t index, measure::StageClock::Slot& slot) const override;
  // A window of the entry's clip, as if the manifest named it.
  ReadResult read_window(int64_t index, double begin_seconds, double seconds, measure::StageClock::Slot& slot) const;
  // Durations the manifests lack are measured from the files' headers, once, and kept beside the manifest.
  double length(int64_t index) const override;
  std::string length_unit() const override { return "seconds"; }
  std::string name(int64_t index) const override;
  uint64_t fingerprint() const override { return fingerprint_; }
  uint64_t content_key(int64_t index) const override;

 private:
  struct Place {
    size_t manifest, entry;
  };
  Place place(int64_t index) const;
  ReadResult read_clip(int64_t index, const AudioRequest& clip, measure::StageClock::Slot& slot) const;
  void check_paths(const Manifest& manifest) const;
  void measure_missing() const;
  double measure_one(const Place& at) const;

  ManifestOptions options_;
  std::vector<Manifest> manifests_;
  std::vector<std::unique_ptr<PathGuard>> guards_;
  std::vector<uint64_t> begins_{0};
  uint64_t fingerprint_ = 0;
  mutable std::once_flag measured_;
  mutable std::vector<std::vector<double>> durations_;  // per manifest; empty when it has them all
};

}  // namespace redline::data
