// NeMo's tarred audio: manifests whose entries lie in tars. An entry finds its member by name (the "-sub3" of a further
// segment of the same file taken off), in the tar of its shard_id when that fits, else in any.
#pragma once

#include <vector>

#include "data/audio/audio_clip.h"
#include "data/audio/manifest.h"
#include "data/source.h"
#include "data/tar/tar_set.h"

namespace redline::data {

class TarredSource : public Source {
 public:
  // Throws DataError when a file is missing or damaged, or when more entries than `max_missing_fraction` have no
  // member. Fewer are left out and counted, as NeMo does (a subset of the tars may be listed).
  TarredSource(const std::vector<std::filesystem::path>& manifests, const std::vector<std::filesystem::path>& tars,
               const AudioRequest& audio, double max_missing_fraction = 1.0);

  int64_t size() const override { return static_cast<int64_t>(clips_.size()); }
  ReadResult read(int64_t index, measure::StageClock::Slot& slot) const override;
  double length(int64_t index) const override { return clips_[static_cast<size_t>(index)].duration; }
  std::string length_unit() const override { return "seconds"; }
  std::string name(int64_t index) const override;
  uint64_t fingerprint() const override { return fingerprint_; }
  uint64_t content_key(int64_t index) const override;
  std::vector<int32_t> locality_groups() const override;  // the tars
  int64_t num_without_member() const { return num_without_member_; }

 private:
  struct Clip {
    uint32_t tar, member;
    double offset;
    double wanted;    // duration the manifest gives; NaN: to the end
    double duration;  // the same, measured where it is missing
  };
  AudioRequest audio_;
  TarSet tars_;
  std::vector<Clip> clips_;
  int64_t num_without_member_ = 0;
  uint64_t fingerprint_ = 0;
};

}  // namespace redline::data
