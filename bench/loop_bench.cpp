// What redline's loop adds to a step: against a bare hand-written LibTorch loop on the same model, data and fused
// optimiser kernel, with all recording on (run record, TensorBoard, CSV, memory accounting, guards). Bars: at most 3 %
// at 1 ms; logging every step instead of every 50 at most 2 % at 10 ms. The last line is JSON for workloads/loop.py.
#include <torch/torch.h>

#include <cmath>

#include "example_setup.h"
#include "interleave.h"
#include "train/step/batches.h"

namespace redline::bench {
namespace {

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
    const task::Batch tensors = train::to_task_batch(*batch, nullptr);
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

// Extra time of b over a, in per cent.
double extra_percent(const Comparison& c) { return (1 / c.estimate.ratio - 1) * 100; }

void print_extra(const char* name, const char* a, const char* b, const Comparison& c, int steps) {
  fmt::print("{:<44} {} {:.3f} ms, {} {:.3f} ms a step: {:+.2f} % [{:+.2f}, {:+.2f}]\n", name, a,
             c.a_seconds * 1e3 / steps, b, c.b_seconds * 1e3 / steps, extra_percent(c),
             (1 / c.estimate.interval.high - 1) * 100, (1 / c.estimate.interval.low - 1) * 100);
}

// Where the two jobs' memory happens to lie moves either of them by several per cent, for as long as they live. So both
// are built anew several times, the bare one first and last in turn, and each such placement counts as one block.
// Within one, turns are short and many: what else runs on the machine then hits both alike.
constexpr int kPlacements = 10;

Comparison overhead(const char* name, std::vector<std::string> options, int repeats, int blocks) {
  options.push_back("trainer.log_every_n_steps=50");
  std::vector<double> bare_seconds, full_seconds, ratios, ones;
  for (int placement = 0; placement < kPlacements; ++placement) {
    const std::filesystem::path folder = scratch();
    {
      std::unique_ptr<Setup> bare_setup, full_setup;
      if (placement % 2 == 1) full_setup = std::make_unique<Setup>(options, folder / "run");
      bare_setup = std::make_unique<Setup>(options, std::filesystem::path());
      if (placement % 2 == 0) full_setup = std::make_unique<Setup>(options, folder / "run");
      BareLoop bare(*bare_setup);
      const Comparison c = compare(
          [&] {
            for (int i = 0; i < repeats; ++i) bare.step();
          },
          [&] { full_setup->trainer->run_steps(repeats); }, blocks, 1);
      print_extra(name, "bare", "redline", c, repeats);
      bare_seconds.push_back(c.a_seconds);
      full_seconds.push_back(c.b_seconds);
      ratios.push_back(c.estimate.ratio);
      ones.push_back(1.0);
    }
    std::filesystem::remove_all(folder);
  }
  const Comparison all{measure::compare_blocks(ratios, ones), measure::median(bare_seconds),
                       measure::median(full_seconds)};
  print_extra("over all placements", "bare", "redline", all, repeats);
  return all;
}

constexpr int kSizingSteps = 200;

// The width at which the bare loop's step is nearest to `seconds` on this machine.
std::vector<std::string> step_of(double seconds, const std::vector<std::string>& options,
                                 const std::vector<int>& widths) {
  std::vector<std::string> best;
  double nearest = 1e9;
  for (const int width : widths) {
    std::vector<std::string> sized = options;
    sized.push_back("model.hidden=" + std::to_string(width));
    Setup setup(sized, {});
    BareLoop bare(setup);
    std::vector<double> took;
    for (int i = 0; i < kSizingSteps; ++i) bare.step();
    for (int i = 0; i < kSizingSteps; ++i) {
      const int64_t begin = now_ns();
      bare.step();
      took.push_back(seconds_between(begin, now_ns()));
    }
    const double miss = std::abs(std::log(measure::median(took) / seconds));
    if (miss < nearest) nearest = miss, best = sized;
  }
  fmt::print("for a step of {:.0f} ms: {}\n", seconds * 1e3, best.back());
  return best;
}

constexpr int kLoggedSteps = 10;  // short turns: a block must be over before the machine changes

Comparison logging(const std::vector<std::string>& size) {
  const std::filesystem::path folder = scratch();
  Comparison c;
  {
    std::vector<std::string> rare = size, often = size;
    rare.push_back("trainer.log_every_n_steps=50");
    often.push_back("trainer.log_every_n_steps=1");
    Setup a(rare, folder / "a"), b(often, folder / "b");
    c = compare([&] { a.trainer->run_steps(kLoggedSteps); }, [&] { b.trainer->run_steps(kLoggedSteps); }, 60, 1);
    print_extra("logging", "every 50", "every step", c, kLoggedSteps);
  }
  std::filesystem::remove_all(folder);
  return c;
}

}  // namespace
}  // namespace redline::bench

int main() {
  using namespace redline::bench;
  const std::vector<std::string> one =
      step_of(1e-3, {"model.train_ds.batch_size=32", "model.features=32", "model.samples=2048"},
              {160, 176, 192, 208, 224, 256, 288});
  const std::vector<std::string> ten =
      step_of(10e-3, {"model.train_ds.batch_size=64", "model.features=96", "model.samples=2048"}, {640, 768, 896});
  constexpr int kSmallSteps = 20;
  const Comparison small = overhead("loop with all recording, small step", one, kSmallSteps, 30);
  const Comparison large = overhead("loop with all recording, larger step", ten, 5, 8);
  const Comparison logs = logging(ten);
  fmt::print(
      "{{\"overhead_percent\": {}, \"small_step_milliseconds\": {}, \"overhead_percent_larger_step\": {}, "
      "\"logging_percent\": {}, \"larger_step_milliseconds\": {}}}\n",
      extra_percent(small), small.a_seconds * 1e3 / kSmallSteps, extra_percent(large), extra_percent(logs),
      logs.a_seconds * 1e3 / kLoggedSteps);
  return 0;
}
