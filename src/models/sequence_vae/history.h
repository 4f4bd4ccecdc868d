// What the monitor saw over the run, in bounded memory: when full, every second point is dropped and only every second,
// fourth, ... new one is kept, so the curve always spans the whole run. Free of torch.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace redline::models::sequence_vae {

struct HistoryPoint {
  int64_t step = 0;
  double kl = 0, mutual_information = 0, reconstruction = 0, kl_weight = 0;
  int64_t active_units = 0;
  int collapse = 0;  // of CollapseVerdict::level
};

class History {
 public:
  explicit History(size_t capacity = 512) : capacity_(capacity) {}
  void add(const HistoryPoint& point);
  const std::vector<HistoryPoint>& points() const { return points_; }
  int64_t stride() const { return stride_; }
  int64_t seen() const { return seen_; }
  void restore(std::vector<HistoryPoint> points, int64_t stride, int64_t seen);

 private:
  size_t capacity_;
  std::vector<HistoryPoint> points_;
  int64_t stride_ = 1, seen_ = 0;  // of all points ever added, every stride-th is kept
};

}  // namespace redline::models::sequence_vae
