// How predicted maps overlap with the true ones, as areas that can be added over batches and ranks; ratios are made at
// the end. Per class intersection and union as lift-splat-shoot's IoU, and the areas of mmseg's mIoU, in which what is
// no class is a class of its own (background) and a cell belongs to the class of its largest logit.
#pragma once

#include <torch/torch.h>

#include <map>
#include <string>
#include <vector>

namespace redline::models::lift_splat {

class Overlap {
 public:
  explicit Overlap(std::vector<std::string> classes);

  // logits and truth [B, classes, X, Y]; a cell is predicted where its logit is above 0.
  void add(const torch::Tensor& logits, const torch::Tensor& truth);
  // Handed over and begun anew.
  std::vector<double> take();
  // CLASS_iou, miou, macc, aacc (mmseg: mIoU, mAcc, aAcc) of such sums; a ratio of nothing is left out.
  std::map<std::string, double> metrics(const std::vector<double>& sums) const;

 private:
  size_t size() const;
  std::vector<std::string> classes_;
  std::vector<double> sums_;  // intersection, union of each class; then intersection, predicted, true of each label
};

}  // namespace redline::models::lift_splat
