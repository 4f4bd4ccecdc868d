// The Agreement of several ranks: each question is one gathering of a few numbers, of which every rank makes the same
// answer. Numbers are added in the order of ranks, so that all get the same bits.
#pragma once

#include "train/options/trainer_options.h"
#include "train/ranks/rank_group.h"
#include "train/ranks/rank_watch.h"
#include "train/step/agreement.h"

namespace redline::train {

struct RankAgreementSettings {
  StrategyConfig strategy;
  bool sync_batchnorm = false;
};

class RankAgreement : public Agreement {
 public:
  RankAgreement(RankGroup& group, RankWatch& watch, const RankAgreementSettings& settings);

  bool alone() const override { return false; }
  double reference_weight(double weight, int64_t expected_pieces) override;
  torch::Tensor reference_weight(const torch::Tensor& weight, int64_t expected_pieces) override;
  void agree(StepVerdict& verdict) override;
  std::unique_ptr<GradientSync> sync_gradients(task::Task& task, const measure::StepClock& clock) override;
  int64_t pieces(int64_t mine, bool limited) override;
  void same_shape(task::Batch& batch) override;
  int stop_signal() const override { return stop_signal_; }
  int64_t now_ns() const override { return first_ns_; }
  bool any(bool mine) override;
  std::vector<double> sum(const std::vector<double>& mine) override;
  double of_first(double mine) override;
  std::map<std::string, double> of_first(const std::map<std::string, double>& mine) override;
  void wait_for_all() override { group_.barrier(); }

  // Steps made before, of a run that continues.
  void begin_at(int64_t step) { watch_.at_step(steps_ = step); }
  // The loop's clock is read by the watch; before that loop ends.
  void forget_loop() { watch_.follow(nullptr); }

 private:
  // gather() as rows of `count`.
  std::vector<double> gather(std::vector<double> mine);
  double pad_value(const std::string& name) const;
  void take_stop(const std::vector<double>& signals);
  void merge_statistics(StepVerdict& verdict, double samples);

  RankGroup& group_;
  RankWatch& watch_;
  RankAgreementSettings settings_;
  task::Task* task_ = nullptr;
  std::vector<std::string> metrics_;
  int stop_signal_ = 0;
  int64_t first_ns_ = 0, steps_ = 0;
  bool cuts_ = false;  // memory has cut pieces on some rank
};

}  // namespace redline::train
