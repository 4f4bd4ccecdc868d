// Gradients of all ranks summed by c10d's Reducer: buckets go out while backward is still running, and only in the last
// piece of a step. What is its own here is the hook that reduces a bucket: it sums (the loop divides once by the weight
// of all), compresses where asked, and knows which buckets have gone out, so that a rank that cannot go on can still
// give the others what they wait for.
#pragma once

#include <torch/csrc/autograd/function.h>
#include <torch/torch.h>

#include <memory>
#include <string>
#include <vector>

#include "measure/step_clock.h"
#include "train/ranks/rank_group.h"
#include "train/ranks/statistics_sum.h"
#include "train/step/gradient_sync.h"

namespace c10d {
class Reducer;
}

namespace redline::train {

struct BucketSettings {
  int64_t bucket_bytes = int64_t{25} << 20;
  bool gradient_as_bucket_view = true;
  // Gradients that no rank has stay undefined, at the price of one more exchange; else they are zeros.
  bool find_unused = false;
  std::string compression = "none";  // or "bf16", "fp16": what goes over the wire
  bool sync_batchnorm = false;
};

class GradientBuckets : public GradientSync {
 public:
  GradientBuckets(RankGroup& group, torch::nn::Module& module, const BucketSettings& settings,
                  measure::StepClock& clock);
  ~GradientBuckets() override;

  void begin() override;
  task::Collective* begin_piece(bool counts) override;
  void last_backward(const torch::Tensor& loss, const std::function<void()>& backward) override;
  void end_forward() override { statistics_.end_forward(); }
  void keep_company(bool last, const std::function<void()>& between) override;
  void abandon() override;
  std::optional<measure::ReduceTimeline> take_timeline() override;

  // Squared length of this rank's own gradients in the pass, before they were summed; nullopt where the pass was not
  // asked (one in kNoiseEvery is, the same on all ranks).
  std::optional<double> own_squared() const;
  void note_noise(double gradient_squared, double variance);
  void note_exchange(int64_t ns);  // of a few numbers, beside the gradients
  void note_samples(int64_t samples) { timeline_.samples = samples; }

 private:
  class Hook;
  void build();
  void note_gradients();
  void note_flights(int64_t begin_ns);
  void mark_missing();
  void reduce_zeros();
  void forget_unused();
  void exchange_used(torch::Tensor& used);

  RankGroup& group_;
  BucketSettings settings_;
  measure::StepClock& clock_;
  std::vector<torch::Tensor> parameters_;
  std::vector<std::string> names_;
  // Which parameters got a gradient in the last piece: a piece without weight may leave some out, on this rank alone.
  std::vector<c10::intrusive_ptr<torch::autograd::Node>> accumulators_;
  std::shared_ptr<std::vector<char>> came_, ever_came_;  // and in any piece of the pass
  StatisticsSum statistics_;
  std::unique_ptr<c10d::Reducer> reducer_;
  Hook* hook_ = nullptr;  // the reducer's
  int64_t passes_ = 0;
  measure::ReduceTimeline timeline_;
  bool timeline_whole_ = false;
};

}  // namespace redline::train
