#include "models/lift_splat/overlap.h"

#include <algorithm>

#include "core/check.h"

namespace redline::models::lift_splat {

namespace {

// The label of each cell: 0 is background, 1 + class otherwise.
torch::Tensor labels_of(const torch::Tensor& scores) {
  const auto [top, which] = scores.max(1);
  return torch::where(top.gt(0.0), which + 1, torch::zeros_like(which));
}

}  // namespace

Overlap::Overlap(std::vector<std::string> classes) : classes_(std::move(classes)), sums_(size(), 0.0) {}

size_t Overlap::size() const { return 2 * classes_.size() + 3 * (classes_.size() + 1); }

void Overlap::add(const torch::Tensor& logits, const torch::Tensor& truth) {
  const torch::NoGradGuard no_grad;
  const torch::Tensor yes = logits.gt(0.0), is = truth.gt(0.5);
  const size_t count = classes_.size();
  for (size_t c = 0; c < count; ++c) {
    const auto a = yes.select(1, static_cast<int64_t>(c)), b = is.select(1, static_cast<int64_t>(c));
    sums_[2 * c] += a.logical_and(b).sum().item<double>();
    sums_[2 * c + 1] += a.logical_or(b).sum().item<double>();
  }
  const torch::Tensor predicted = labels_of(logits), real = labels_of(truth);
  for (size_t label = 0; label <= count; ++label) {
    const torch::Tensor p = predicted.eq(static_cast<int64_t>(label)), t = real.eq(static_cast<int64_t>(label));
    double* areas = sums_.data() + 2 * count + 3 * label;
    areas[0] += p.logical_and(t).sum().item<double>();
    areas[1] += p.sum().item<double>();
    areas[2] += t.sum().item<double>();
  }
}

std::vector<double> Overlap::take() {
  std::vector<double> out(size(), 0.0);
  std::swap(out, sums_);
  return out;
}

std::map<std::string, double> Overlap::metrics(const std::vector<double>& sums) const {
  REDLINE_CHECK(sums.size() == size(), "sums of the same classes");
  const size_t count = classes_.size();
  std::map<std::string, double> out;
  for (size_t c = 0; c < count; ++c)
    if (sums[2 * c + 1] > 0.0) out[classes_[c] + "_iou"] = sums[2 * c] / sums[2 * c + 1];
  double iou = 0.0, accuracy = 0.0, hits = 0.0, cells = 0.0;
  int64_t ious = 0, accuracies = 0;
  for (size_t label = 0; label <= count; ++label) {
    const double* areas = sums.data() + 2 * count + 3 * label;
    const double joined = areas[1] + areas[2] - areas[0];
    if (joined > 0.0) iou += areas[0] / joined, ++ious;
    if (areas[2] > 0.0) accuracy += areas[0] / areas[2], ++accuracies;
    hits += areas[0];
    cells += areas[2];
  }
  if (ious > 0) out["miou"] = iou / static_cast<double>(ious);
  if (accuracies > 0) out["macc"] = accuracy / static_cast<double>(accuracies);
  if (cells > 0.0) out["aacc"] = hits / cells;
  return out;
}

}  // namespace redline::models::lift_splat
