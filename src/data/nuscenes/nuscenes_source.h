// Key frames as samples: the bytes of all cameras' pictures, their calibration and the label map. Which cameras are
// used and what happens to their pictures is drawn later (camera_transform.h), because a source knows no epoch.
#pragma once

#include <filesystem>
#include <memory>
#include <string>

#include "data/files/path_guard.h"
#include "data/nuscenes/label_map.h"
#include "data/nuscenes/tables.h"
#include "data/source.h"

namespace redline::data::nuscenes {

class NuscenesSource : public Source {
 public:
  // `boxes`: annotations that a sample carries for pictures, at most; 0: none.
  NuscenesSource(const std::filesystem::path& root, Tables tables, LabelGrid grid, int64_t boxes = 0);
  int64_t size() const override { return static_cast<int64_t>(tables_.frames.size()); }
  ReadResult read(int64_t index, measure::StageClock::Slot& slot) const override;
  double length(int64_t) const override { return 1.0; }
  std::string length_unit() const override { return "samples"; }
  std::string name(int64_t index) const override;
  uint64_t fingerprint() const override { return fingerprint_; }
  uint64_t content_key(int64_t index) const override;
  const Tables& tables() const { return tables_; }

 private:
  Tables tables_;
  LabelGrid grid_;
  int64_t boxes_;
  std::unique_ptr<PathGuard> guard_;
  uint64_t fingerprint_ = 0;
};

}  // namespace redline::data::nuscenes
