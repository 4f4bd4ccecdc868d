// WebDataset tars: the members that share a stem are one sample. Audio (wav, flac) or pictures (jpg, jpeg, png); the
// label comes from "cls" (a number) or "json" ("label" or "cls"), the duration from "json" ("duration") or the audio's
// header.
#pragma once

#include <mutex>
#include <vector>

#include "data/audio/audio_clip.h"
#include "data/source.h"
#include "data/tar/tar_set.h"

namespace redline::data {

enum class WebKind { Audio, Images };

class WebDatasetSource : public Source {
 public:
  // Throws DataError when no sample has a part of the kind. Samples without one are left out and counted.
  WebDatasetSource(const std::vector<std::filesystem::path>& tars, WebKind kind, const AudioRequest& audio = {});

  int64_t size() const override { return static_cast<int64_t>(items_.size()); }
  // "audio", or "image_bytes" for the picture transform; "label" when there is one.
  ReadResult read(int64_t index, measure::StageClock::Slot& slot) const override;
  double length(int64_t index) const override;
  std::string length_unit() const override { return kind_ == WebKind::Audio ? "seconds" : "images"; }
  std::string name(int64_t index) const override;
  uint64_t fingerprint() const override { return fingerprint_; }
  std::vector<int32_t> locality_groups() const override;

 private:
  struct Item {
    uint32_t tar = 0, payload = 0;
    uint32_t label = UINT32_MAX, json = UINT32_MAX;  // members; UINT32_MAX = none
  };
  struct Meta {
    std::optional<double> duration;
    std::optional<int64_t> label;
  };
  Meta read_meta(const Item& item) const;
  ReadResult read_picture(const Item& item, const std::string& sample_name, measure::StageClock::Slot& slot) const;
  double measure(const Item& item) const;

  WebKind kind_;
  AudioRequest audio_;
  TarSet tars_;
  std::vector<Item> items_;
  uint64_t fingerprint_ = 0;
  mutable std::once_flag measured_;
  mutable std::vector<double> durations_;
};

}  // namespace redline::data
