// The example of docs/new_task.md: a small regression task on tensors in memory. The tests of this room train it.
#pragma once

#include <memory>
#include <string>

#include "task/compiled_part.h"
#include "task/registry.h"
#include "task/task.h"

namespace redline::example {

// Each option is one row; YAML, flags, checks and docs come from it.
struct CurveOptions {
  int64_t features = 8, hidden = 32;
  double dropout = 0.1;
  int64_t samples = 256, longest = 12;
  static config::Table<CurveOptions> fields();
};

// Points on a curve; a sample is a list of 1..longest points, so the loss averages over a varying number of items.
class CurveTask : public task::Task, public task::CompiledPart {
 public:
  CurveTask(const CurveOptions& options, uint64_t seed);

  torch::nn::Module& module() override { return *module_; }
  task::BatchSchema schema() const override;
  task::Loss loss(const task::Batch& batch, task::Context& ctx) override;
  // All of the loss is a function of tensors: a compiled step may compute the whole.
  task::CompiledPart* compiled_part() override { return this; }
  task::Tensors before(const task::Batch& batch, task::Context&) override { return batch.tensors; }
  task::PartResult compute(const task::Tensors& in, task::Context& ctx) override;
  std::vector<task::MetricInfo> metrics() const override;
  double flops_per_sample(double length) const override;
  task::Batch worst_case_batch(int64_t batch_size) const override;
  data::CollateSpec collate() const override;
  std::shared_ptr<const data::Kind> kind() const override;

 protected:
  torch::Tensor predict_points(const torch::Tensor& x_BTF, task::Context& ctx);

  CurveOptions options_;
  uint64_t seed_;
  std::shared_ptr<torch::nn::Module> module_;
  torch::nn::Linear first_{nullptr}, second_{nullptr};
};

class CurveConfig : public task::TaskConfig {
 public:
  void add_sections(config::Schema& schema) override { schema.section("model", options); }
  std::unique_ptr<task::Task> build(uint64_t seed) const override { return std::make_unique<CurveTask>(options, seed); }

  CurveOptions options;
};

// The one line that makes a task known (models/register.cpp has one per task).
void register_curve(task::Registry& registry);

}  // namespace redline::example
