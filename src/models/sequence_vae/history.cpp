#include "models/sequence_vae/history.h"

namespace redline::models::sequence_vae {

void History::add(const HistoryPoint& point) {
  if (seen_++ % stride_ != 0) return;
  points_.push_back(point);
  if (points_.size() < capacity_) return;
  size_t kept = 0;
  for (size_t i = 0; i < points_.size(); i += 2) points_[kept++] = points_[i];
  points_.resize(kept);
  stride_ *= 2;
}

void History::restore(std::vector<HistoryPoint> points, int64_t stride, int64_t seen) {
  points_ = std::move(points);
  stride_ = stride;
  seen_ = seen;
}

}  // namespace redline::models::sequence_vae
