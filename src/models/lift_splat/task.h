// Camera pictures to a bird's-eye-view map of vehicles: loss, metrics pooled over the validation set, registration.
#pragma once

#include <memory>

#include "models/lift_splat/model.h"
#include "models/lift_splat/overlap.h"
#include "models/lift_splat/scene_monitor.h"
#include "task/compiled_part.h"
#include "task/registry.h"
#include "task/task.h"

namespace redline::models::lift_splat {

class LiftSplatTask : public task::Task, public task::CompiledPart {
 public:
  LiftSplatTask(const Options& options, uint64_t seed);

  torch::nn::Module& module() override { return *model_; }
  task::BatchSchema schema() const override;
  task::Loss loss(const task::Batch& batch, task::Context& ctx) override;
  task::CompiledPart* compiled_part() override { return this; }
  task::Tensors before(const task::Batch& batch, task::Context& ctx) override;
  task::PartResult compute(const task::Tensors& in, task::Context& ctx) override;
  void after(const task::Batch& batch, const task::PartResult& result, task::Context& ctx) override;
  std::map<std::string, torch::Tensor> predict(const task::Batch& batch, task::Context& ctx) override;
  std::vector<task::MetricInfo> metrics() const override;
  std::vector<double> take_validation_sums() override;
  std::map<std::string, double> finish_validation(const std::vector<double>& sums) override;
  bool batch_statistics() const override { return true; }
  double flops_per_sample(double length) const override;
  task::Batch worst_case_batch(int64_t batch_size) const override;
  data::CollateSpec collate() const override;
  std::shared_ptr<const data::Kind> kind() const override {
    return data::nuscenes_kind(options_.nuscenes, options_.request());
  }
  bool supports_channels_last() const override { return true; }
  std::unique_ptr<task::Monitor> monitor() override;

 private:
  torch::Tensor cell_loss(const torch::Tensor& logits, const torch::Tensor& truth) const;

  Options options_;
  Model model_;
  Overlap validation_;
  std::shared_ptr<SceneStore> scenes_;
};

class LiftSplatConfig : public task::TaskConfig {
 public:
  void add_sections(config::Schema& schema) override { schema.section("model", options_); }
  void resolve(const MachineFacts& machine) override;
  std::unique_ptr<task::Task> build(uint64_t seed) const override;

 private:
  Options options_;
};

task::TaskEntry lift_splat_entry();

}  // namespace redline::models::lift_splat
