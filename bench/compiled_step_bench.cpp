// A training step of any job at the shape of its longest batch, three ways: as the job runs it (eager), by LibTorch's
// operators alone (plain: no kernel of ours), and compiled. Forward, backward, the check of the gradients, the
// optimiser. Arguments: STEPS eager|plain|compiled CONFIG [OVERRIDES].
#include <fmt/format.h>
#include <torch/torch.h>

#include <cstdlib>

#include "core/time.h"
#include "device/machine.h"
#include "measure/statistics.h"
#include "models/register.h"
#include "task/compiled_part.h"
#include "train/compile/compiled_step.h"
#include "train/optim/gradients.h"
#include "train/optim/optimizer.h"
#include "train/optim/parameter_rules.h"
#include "train/training_run.h"

namespace redline::bench {
namespace {

// The part that a compiled step computes, by operators and autograd.
class PlainStep : public train::EagerStep {
 public:
  using EagerStep::EagerStep;

 protected:
  task::Loss loss_of(const task::Batch& batch, task::Context& context) override {
    return task().compiled_part()->compute(task().compiled_part()->before(batch, context), context).loss;
  }
};

int run(int argc, char** argv) {
  if (argc < 4) {
    fmt::print(stderr, "compiled_step_bench STEPS eager|plain|compiled CONFIG [OVERRIDES]\n");
    return 2;
  }
  const int64_t steps = std::atoll(argv[1]);
  const std::string way = argv[2];
  config::RequestSource source;
  source.file = argv[3];
  for (int i = 4; i < argc; ++i) {
    const std::string word = argv[i];
    if (word.starts_with("preset="))
      source.preset = word.substr(7);
    else
      source.overrides.push_back(word);
  }
  task::Registry registry;
  models::register_all(registry);
  const auto job = train::Job::read(registry, source, device::read_machine_facts());
  train::prepare_process(*job);
  const std::unique_ptr<task::Task> task = job->build_task();
  const task::Batch batch = task->worst_case_batch(train::rows_at_once(*job));
  measure::StepClock clock;
  train::Alone agreement;
  double compile_seconds = 0;
  std::unique_ptr<train::EagerStep> program;
  if (way == "compiled") {
    train::CompileSettings settings = train::compile_settings(job->trainer(), job->machine());
    settings.mode = train::CompileMode::Before;
    program = std::make_unique<train::CompiledStep>(*task, job->device(), clock, agreement, nullptr, settings,
                                                    [&](const std::string& kind, const measure::FieldList& fields) {
                                                      if (kind != "compile.switch") return;
                                                      for (const auto& [name, value] : fields) {
                                                        if (name == "compile_seconds")
                                                          compile_seconds = std::get<double>(value);
                                                      }
                                                    });
  } else if (way == "plain") {
    program = std::make_unique<PlainStep>(*task, job->device(), clock, agreement, nullptr);
  } else {
    program = std::make_unique<train::EagerStep>(*task, job->device(), clock, agreement, nullptr);
  }
  train::Optimizer optimizer(
      job->optim(), train::apply_parameter_rules(task->module(), task->parameter_groups(), job->optim().rules()));
  task->module().train();
  std::vector<double> total;
  double last_loss = 0;
  for (int64_t step = -3; step < steps; ++step) {
    task->begin_attempt();
    const int64_t begin = now_ns();
    program->begin({job->seed(), step + 3, job->precision(), 1.0, 1});
    program->add(batch, /*last=*/true);
    const train::StepVerdict verdict = program->finish();
    const train::GradientCheck check = train::check_gradients(optimizer.gradients());
    optimizer.step(1e-4, program->divisor(verdict.weight));
    train::apply_batch_norm(verdict.batch_norm);
    optimizer.clear_gradients();
    if (step >= 0 && check.finite) total.push_back(seconds_between(begin, now_ns()) * 1e3);
    last_loss = verdict.loss();
  }
  if (way == "compiled" && static_cast<train::CompiledStep&>(*program).num_packages() == 0) {
    fmt::print(stderr, "The step was not compiled.\n");
    return 1;
  }
  fmt::print("{{\"step_ms\": {:.3f}, \"loss\": {:.5f}, \"compile_seconds\": {:.1f}, \"samples\": {}}}\n",
             measure::median(total), last_loss, compile_seconds, batch.size());
  return 0;
}

}  // namespace
}  // namespace redline::bench

int main(int argc, char** argv) { return redline::bench::run(argc, argv); }
