// The sequence VAE as a task: loss with KL schedule and free bits, validation statistics, the collapse monitor,
// aggressive encoder training, and generation for `redline sample`.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "data/kinds.h"
#include "models/sequence_vae/aggressive.h"
#include "models/sequence_vae/monitor.h"
#include "models/sequence_vae/options.h"
#include "models/sequence_vae/sequence_model.h"
#include "task/compiled_part.h"
#include "task/registry.h"
#include "task/task.h"

namespace redline::models::sequence_vae {

class SequenceVaeTask : public task::Task, public task::CompiledPart {
 public:
  SequenceVaeTask(const Options& options, uint64_t seed);

  torch::nn::Module& module() override { return *model_; }
  task::BatchSchema schema() const override;
  task::Loss loss(const task::Batch& batch, task::Context& ctx) override;
  task::CompiledPart* compiled_part() override { return this; }
  std::string refusal() const override;
  task::Tensors before(const task::Batch& batch, task::Context& ctx) override;
  task::PartResult compute(const task::Tensors& in, task::Context& ctx) override;
  void after(const task::Batch& batch, const task::PartResult& result, task::Context& ctx) override;
  std::map<std::string, torch::Tensor> predict(const task::Batch& batch, task::Context& ctx) override;
  std::vector<task::MetricInfo> metrics() const override;
  std::vector<double> take_validation_sums() override;
  std::map<std::string, double> finish_validation(const std::vector<double>& sums) override;
  std::vector<task::ParameterGroup> parameter_groups() const override;
  std::vector<std::string> groups_to_update() const override;
  bool batch_statistics() const override;
  bool computes_padding() const override { return false; }
  double flops_per_sample(double length) const override;
  task::Batch worst_case_batch(int64_t batch_size) const override;
  data::CollateSpec collate() const override;
  std::shared_ptr<data::SampleTransform> sample_transform() const override;
  std::shared_ptr<const data::Kind> kind() const override { return data::table_kind(options_.column); }
  std::unique_ptr<task::Monitor> monitor() override;
  void begin_attempt() override;
  std::vector<double> step_sums() const override;
  void set_step_sums(const std::vector<double>& sums) override;
  void committed(int64_t step) override;
  std::string state_json() const override;
  void load_state_json(const std::string& text) override;

  const Options& options() const { return options_; }
  SequenceModel& model() { return *model_; }
  double kl_weight_now() const { return kl_weight(options_.kl_schedule, steps_done_); }

 private:
  struct Forward {
    Sequences sequences;
    Posterior posterior;
    torch::Tensor draw, kl;  // [B, latent]
  };
  std::vector<int64_t> checked_lengths(const task::Batch& batch) const;
  void check_tokens(const torch::Tensor& packed, const PackedRows& rows, const task::Batch& batch) const;
  Sequences read(const task::Batch& batch) const;
  Forward encode(const task::Batch& batch, task::Context& ctx);
  void note_training(const Posterior& posterior, const torch::Tensor& draw, const torch::Tensor& reconstruction,
                     const torch::Tensor& value, int64_t positions);
  void note_validation(const Forward& forward, const torch::Tensor& reconstruction);

  Options options_;
  std::shared_ptr<SequenceModel> model_;
  std::shared_ptr<PosteriorWindow> window_;  // null when nothing is monitored
  int64_t steps_done_ = 0;
  // Whole-set statistics of the validation that is running.
  PosteriorStatistics validation_;
  double validation_nll_ = 0.0, validation_words_ = 0.0;
  // Sums over the pieces of the step that is running, for aggressive training.
  AggressiveTraining aggressive_;
  double step_loss_ = 0.0, step_words_ = 0.0;
};

class SequenceVaeConfig : public task::TaskConfig {
 public:
  void add_sections(config::Schema& schema) override { schema.section("model", options_); }
  void resolve(const MachineFacts& machine) override;
  std::string monitor_metric() const override;
  std::vector<std::string> bound_to_batch() const override;
  std::unique_ptr<task::Task> build(uint64_t seed) const override;
  Options& options() { return options_; }

 private:
  Options options_;
};

task::TaskEntry sequence_vae_entry();

}  // namespace redline::models::sequence_vae
