// The Agreement of several ranks: each question is one gathering of a few numbers, of which every rank makes the same
// answer. Numbers are added in the order of ranks, so that all get the same bits.
#pragma once

#include "train/options/trainer_options.h"
#include "train/ranks/rank_group.h"
#include "train/ranks/rank_watch.h"
#include "train/ranks/straggler_table.h"
#include "train/step/agreement.h"

namespace redline::train {

struct RankAgreementSettings {
  StrategyConfig strategy;
  bool sync_batchnorm = false;
  // A number's range matters (fp16): gradients are relative to a weight that all agree on in each step. Else the weight
  // of the step before does as well, being a power of two, and costs no exchange.
  bool narrow_range = false;
};

class GradientBuckets;

class RankAgreement : public Agreement {
 public:
  RankAgreement(RankGroup& group, RankWatch& watch, const RankAgreementSettings& settings);

  bool alone() const override { return false; }
  double reference_weight(double weight, int64_t expected_pieces) override;
  torch::Tensor reference_weight(const torch::Tensor& weight, int64_t expected_pieces) override;
  void agree(StepVerdict& verdict) override;
  void tell_damage(bool damaged) override { damaged_ = damaged; }
  std::unique_ptr<GradientSync> sync_gradients(task::Task& task, const measure::StepClock& clock) override;
  int64_t pieces(int64_t mine, bool limited) override;
  void same_shape(task::Batch& batch) override;
  int stop_signal() const override { return stop_signal_; }
  int64_t now_ns() const override { return first_ns_; }
  bool any(bool mine) override;
  std::vector<double> sum(const std::vector<double>& mine) override;
  double of_first(double mine) override;
  std::vector<torch::Tensor> join_rows(const std::vector<torch::Tensor>& mine) override;
  std::map<std::string, double> of_first(const std::map<std::string, double>& mine) override;
  void wait_for_all() override { group_.barrier(); }

  // Steps made before, of a run that continues.
  void begin_at(int64_t step) { watch_.at_step(steps_ = step); }
  // The loop's clock is read by the watch; before that loop ends.
  void forget_loop();
  // Told on rank 0 when a rank is found to be slow.
  void on_straggler(std::function<void(const Straggler&, int64_t step)> told) { told_ = std::move(told); }

 private:
  // gather() as rows of `count`.
  std::vector<double> gather(std::vector<double> mine);
  double pad_value(const std::string& name) const;
  void take_stop(const std::vector<double>& signals);
  void merge_statistics(StepVerdict& verdict, double samples);
  void note_noise(const StepVerdict& verdict, const std::vector<double>& all, size_t width);
  void find_straggler(const std::vector<double>& all, size_t width, size_t field);
  std::vector<double> own_times();
  void counted(const std::function<void()>& exchange);

  RankGroup& group_;
  RankWatch& watch_;
  RankAgreementSettings settings_;
  task::Task* task_ = nullptr;
  std::vector<std::string> metrics_;
  int stop_signal_ = 0;
  int64_t first_ns_ = 0, steps_ = 0;
  bool cuts_ = false;     // memory has cut pieces on some rank
  bool damaged_ = false;  // this rank, by its last commit
  double reference_ = 0;  // that the next step's gradients are relative to; 0: to be agreed on
  double used_reference_ = 1;
  measure::StepClock* clock_ = nullptr;  // of the loop, and its gradients
  GradientBuckets* buckets_ = nullptr;
  StragglerTable stragglers_;
  int64_t cpu_ns_ = 0;
  std::function<void(const Straggler&, int64_t step)> told_;
};

}  // namespace redline::train
