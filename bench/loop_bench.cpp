// What redline's loop adds to a step: against a bare hand-written LibTorch loop on the same model, data and fused
// optimiser kernel, with all recording on (run record, TensorBoard, CSV, memory accounting, guards). Bars: at most 3 %
// at 1 ms; logging every step instead of every 50 at most 2 % at 10 ms.
#include <stdlib.h>
#include <torch/torch.h>

#include <filesystem>

#include "device/machine.h"
#include "device/memory.h"
#include "interleave.h"
#include "train/loop/batches.h"
#include "train/run/run_observer.h"
#include "train/run/training_run.h"
#include "train/testing/example_task.h"

namespace redline::bench {
namespace {

struct Setup {
  Setup(const std::vector<std::string>& overrides, const std::filesystem::path& folder) {
    example::register_curve(registry);
    config::RequestSource source;
    source.overrides = {"task=curve", "model.train_ds.num_workers=1", "trainer.intra_op_threads=1",
                        "trainer.max_steps=-1", "model.dropout=0.1"};
    source.overrides.insert(source.overrides.end(), overrides.begin(), overrides.end());
    job = train::Job::read(registry, source, device::read_machine_facts());
    train::prepare_process(*job);
    task = job->build_task();
    loader = job->build_loader(*task, train::Job::Part::Train, {});
    if (folder.empty()) return;
    writer = std::make_unique<measure::RunWriter>(folder, true, train::metric_table(*task));
    observer = std::make_unique<train::RunObserver>(
        *writer, *task, train::RunObserverSettings{true, true, true, 0, -1, std::nullopt, 0});
    trainer = std::make_unique<train::Trainer>(
        train::Trainer::Parts{*task, *loader, nullptr, nullptr, observer.get(), nullptr},
        train::make_loop_settings(*job, *task, *loader));
  }
  task::Registry registry;
  std::unique_ptr<train::Job> job;
  std::unique_ptr<task::Task> task;
  std::unique_ptr<data::Loader> loader;
  std::unique_ptr<measure::RunWriter> writer;
  std::unique_ptr<train::RunObserver> observer;
  std::unique_ptr<train::Trainer> trainer;
};

// What one writes by hand: next batch, loss, backward, fused AdamW, zero_grad; the loss is read once per step.
struct BareLoop {
  explicit BareLoop(Setup& s) : setup(s) {
    for (const torch::Tensor& p : s.task->module().parameters()) {
      params.push_back(p);
      first.push_back(torch::zeros_like(p));
      second.push_back(torch::zeros_like(p));
      steps.push_back(torch::zeros({}));
    }
  }
  void step() {
    auto batch = setup.loader->next();
    if (!batch) {
      setup.loader->seek(++epoch, 0);
      batch = setup.loader->next();
    }
    const task::Batch tensors = train::to_task_batch(*batch, nullptr, false);
    task::Context context(1, count++, true, tensors.sample_ids);
    const task::Loss loss = setup.task->loss(tensors, context);
    loss.value.backward();
    sink += loss.value.item<float>();
    const torch::NoGradGuard no_grad;
    std::vector<torch::Tensor> grads;
    for (size_t i = 0; i < params.size(); ++i) {
      grads.push_back(params[i].grad());
      steps[i].add_(1);
    }
    at::_fused_adamw_(params, grads, first, second, {}, steps, 1e-3, 0.9, 0.999, 0.0, 1e-8, false, false);
    for (torch::Tensor& p : params) p.mutable_grad().reset();
  }
  Setup& setup;
  std::vector<torch::Tensor> params, first, second, steps;
  int64_t count = 0, epoch = 0;
  double sink = 0;
};

std::filesystem::path scratch() {
  std::string name = (std::filesystem::temp_directory_path() / "redline_bench_XXXXXX").string();
  return mkdtemp(name.data());
}

void overhead(const char* name, const std::vector<std::string>& size, int repeats) {
  const std::filesystem::path folder = scratch();
  {
    std::vector<std::string> options = size;
    options.push_back("trainer.log_every_n_steps=50");
    Setup bare_setup(options, {}), full_setup(options, folder / "run");
    BareLoop bare(bare_setup);
    const Comparison c = compare(
        [&] {
          for (int i = 0; i < repeats; ++i) bare.step();
        },
        [&] { full_setup.trainer->run_steps(repeats); }, 15, 1);
    fmt::print("{:<44} bare {:.3f} ms, redline {:.3f} ms a step: {:+.2f} % [{:+.2f}, {:+.2f}]\n", name,
               c.a_seconds * 1e3 / repeats, c.b_seconds * 1e3 / repeats, (1 / c.estimate.ratio - 1) * 100,
               (1 / c.estimate.interval.high - 1) * 100, (1 / c.estimate.interval.low - 1) * 100);
  }
  std::filesystem::remove_all(folder);
}

void logging(const std::vector<std::string>& size) {
  const std::filesystem::path folder = scratch();
  {
    std::vector<std::string> rare = size, often = size;
    rare.push_back("trainer.log_every_n_steps=50");
    often.push_back("trainer.log_every_n_steps=1");
    Setup a(rare, folder / "a"), b(often, folder / "b");
    const Comparison c = compare([&] { a.trainer->run_steps(50); }, [&] { b.trainer->run_steps(50); }, 12, 1);
    fmt::print("{:<44} every 50 {:.3f} ms, every step {:.3f} ms: {:+.2f} % [{:+.2f}, {:+.2f}]\n", "logging",
               c.a_seconds * 20, c.b_seconds * 20, (1 / c.estimate.ratio - 1) * 100,
               (1 / c.estimate.interval.high - 1) * 100, (1 / c.estimate.interval.low - 1) * 100);
  }
  std::filesystem::remove_all(folder);
}

}  // namespace
}  // namespace redline::bench

int main() {
  // About 1 ms and 10 ms on the machines at hand; the printed step time says what it was.
  const std::vector<std::string> one = {"model.train_ds.batch_size=32", "model.hidden=512", "model.features=64",
                                        "model.samples=2048"};
  const std::vector<std::string> ten = {"model.train_ds.batch_size=64", "model.hidden=2048", "model.features=128",
                                        "model.samples=2048"};
  redline::bench::overhead("loop with all recording, small step", one, 100);
  redline::bench::overhead("loop with all recording, larger step", ten, 20);
  redline::bench::logging(ten);
  return 0;
}
