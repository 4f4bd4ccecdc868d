#include "train/ranks/statistics_sum.h"

#include <fmt/format.h>

#include "core/error.h"
#include "core/time.h"
#include "train/step/no_refusals.h"

namespace redline::train {

void StatisticsSum::end_piece() {
  if (in_piece_ && now_.size() >= whole_.size()) whole_ = now_;
  now_.clear();
}

task::Collective* StatisticsSum::begin_piece(bool counts) {
  end_piece();
  in_piece_ = true;
  return counts ? &counted_ : &silent_;
}

torch::Tensor StatisticsSum::add(const torch::Tensor& value, bool counts) {
  const measure::PhaseScope scope(clock_, measure::Phase::Reduce);
  const NoRefusals no_refusals;
  torch::Tensor sum = counts ? value.detach().clone(at::MemoryFormat::Contiguous) : torch::zeros_like(value);
  now_.push_back(sum.numel());
  const int64_t begin_ns = now_ns();
  ++sums_;
  if (sum.is_cpu()) {
    group_.add_in_place(sum);
    sum_ns_ += now_ns() - begin_ns;
    return sum;
  }
  torch::Tensor host = sum.to(torch::kCPU);  // the small group is Gloo's; not tested
  group_.add_in_place(host);
  return host.to(sum.device());
}

void StatisticsSum::keep_company(const std::function<void()>& between) {
  if (whole_.empty())
    throw OutOfMemoryError(
        fmt::format("Rank {} ran out of memory in its first piece, while the others wait in a synchronised BatchNorm; "
                    "lower micro_batch_size or raise trainer.memory_limit.",
                    group_.rank()));
  const size_t done = in_piece_ ? now_.size() : 0;
  for (size_t i = done; i < whole_.size(); ++i) {
    if (i == forward_sums_) between();
    torch::Tensor zeros = torch::zeros({whole_[i]}, torch::kFloat32);
    group_.add_in_place(zeros);
  }
  now_.clear();
  in_piece_ = false;
}

}  // namespace redline::train
