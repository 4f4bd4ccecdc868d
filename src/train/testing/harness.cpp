#include "train/testing/harness.h"

#include <stdlib.h>

#include "device/autocast.h"
#include "device/memory.h"
#include "device/threads.h"
#include "measure/faults.h"
#include "train/signals.h"

namespace redline::train::testing {

namespace {

class FragileTask : public example::CurveTask {
 public:
  using CurveTask::CurveTask;
  FragileTask(const example::CurveOptions& options, uint64_t seed) : CurveTask(options, seed) {
    mean_ = module_->register_buffer("running_mean", torch::zeros({options.hidden}));
    variance_ = module_->register_buffer("running_var", torch::ones({options.hidden}));
  }

  task::Loss loss(const task::Batch& batch, task::Context& ctx) override {
    const Fragile& how = fragile();
    task::Batch changed = batch;
    const bool mixed = device::autocast_enabled(device::DeviceKind::Cpu);
    const bool breaks = ctx.training() &&
                        (how.always_nan ||
                         (mixed && std::count(how.mixed_nan_steps.begin(), how.mixed_nan_steps.end(), ctx.step()) > 0));
    if (breaks) {
      // 0/0 on the second sample only.
      torch::Tensor factor = torch::ones({batch.size(), 1, 1});
      factor[std::min<int64_t>(1, batch.size() - 1)] = 0;
      changed.tensors["x"] = batch.at("x") * factor.div(factor);
    }
    if (how.batch_norm && ctx.training()) {
      const torch::Tensor hidden = first_->forward(batch.at("x")).detach().flatten(0, 1);
      ctx.defer({mean_, variance_, {}, hidden.mean(0), hidden.var(0), 0.1});
    }
    task::Loss loss = CurveTask::loss(changed, ctx);
    if (how.zero_weight) loss.weight = loss.weight * 0;
    if (how.detached) loss.value = loss.value.detach();
    if (how.wrong_shape) loss.value = loss.value.expand({2});
    return loss;
  }
  bool batch_statistics() const override { return fragile().batch_norm; }
  std::unique_ptr<task::Monitor> monitor() override {
    return fragile().make_monitor ? fragile().make_monitor() : nullptr;
  }

 private:
  torch::Tensor mean_, variance_;
};

class FragileConfig : public example::CurveConfig {
 public:
  std::unique_ptr<task::Task> build(uint64_t seed) const override {
    return std::make_unique<FragileTask>(options, seed);
  }
};

}  // namespace

Fragile& fragile() {
  static Fragile how;
  return how;
}

const task::Registry& registry() {
  static const task::Registry known = [] {
    task::Registry r;
    example::register_curve(r);
    r.add({"fragile", "The example with ways to break.", [] { return std::make_unique<FragileConfig>(); }, {}, {}});
    return r;
  }();
  return known;
}

std::unique_ptr<Job> make_job(const std::vector<std::string>& overrides) {
  config::RequestSource source;
  source.overrides = {"task=curve",
                      "model.train_ds.batch_size=8",
                      "model.train_ds.num_workers=0",
                      "model.validation_ds.batch_size=16",
                      "model.optim.lr=0.01",
                      "trainer.log_every_n_steps=5",
                      "trainer.intra_op_threads=1",
                      "trainer.enable_progress_bar=false"};
  source.overrides.insert(source.overrides.end(), overrides.begin(), overrides.end());
  MachineFacts machine;
  machine.allowed_cpus = machine.logical_cpus = 2;
  machine.gemm_fp32_gflops = 100;
  machine.avx512_bf16 = machine.avx512_fp16 = true;  // mixed precision runs as asked
  return Job::read(registry(), source, machine);
}

int64_t Collected::count(const std::string& kind) const {
  return std::count_if(events.begin(), events.end(), [&](const measure::Event& e) { return e.kind == kind; });
}

std::string Collected::text(const std::string& kind, const std::string& field) const {
  for (auto event = events.rbegin(); event != events.rend(); ++event) {
    if (event->kind != kind) continue;
    const measure::FieldValue* value = event->find(field);
    return value != nullptr && std::holds_alternative<std::string>(*value) ? std::get<std::string>(*value) : "";
  }
  return "";
}

Loop::Loop(const std::vector<std::string>& overrides, CheckpointStore* store) : job(make_job(overrides)) {
  measure::faults::clear();
  StopFlag::clear();
  device::memory::install();
  device::memory::set_enabled(true);
  device::memory::set_limit(0);
  device::memory::fail_allocation(0);
  device::set_intra_op_threads(static_cast<int>(job->trainer().intra_op_threads.value()));
  task = job->build_task();
  train = job->build_loader(*task, Job::Part::Train, {});
  validation = job->build_loader(*task, Job::Part::Validation, {});
  trainer = std::make_unique<Trainer>(LoopParts{*task, *train, validation.get(), store, &seen, nullptr},
                                      make_loop_settings(*job, *task, *train));
}

std::map<std::string, torch::Tensor> Loop::weights() const {
  std::map<std::string, torch::Tensor> result;
  for (const auto& item : task->module().named_parameters()) result[item.key()] = item.value().detach().clone();
  for (const auto& item : task->module().named_buffers()) result[item.key()] = item.value().detach().clone();
  return result;
}

double difference(const std::map<std::string, torch::Tensor>& a, const std::map<std::string, torch::Tensor>& b) {
  double largest = 0, scale = 0;
  for (const auto& [name, tensor] : a) {
    largest = std::max(largest, (tensor - b.at(name)).abs().max().item<double>());
    scale = std::max(scale, tensor.abs().max().item<double>());
  }
  return largest / scale;
}

bool bit_equal(const std::map<std::string, torch::Tensor>& a, const std::map<std::string, torch::Tensor>& b) {
  if (a.size() != b.size()) return false;
  for (const auto& [name, tensor] : a)
    if (!torch::equal(tensor, b.at(name))) return false;
  return true;
}

TemporaryFolder::TemporaryFolder() {
  std::string name = (std::filesystem::temp_directory_path() / "redline_test_XXXXXX").string();
  path_ = mkdtemp(name.data());
}

TemporaryFolder::~TemporaryFolder() {
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

}  // namespace redline::train::testing
