// What the guards cost a step of 20 M parameters: the check of the weights after a commit, the copies for replay and
// the accounting allocator, on against off. The gradients' norm is taken in both: it is logged and clips. Bar: at most
// 1 %. The last line is JSON for workloads/guards.py.
#include <torch/torch.h>

#include "device/memory.h"
#include "example_setup.h"
#include "interleave.h"

int main() {
  using namespace redline;
  using namespace redline::bench;
  const std::filesystem::path folder = scratch();
  {
    const std::vector<std::string> size = {"model.train_ds.batch_size=16",
                                           "model.features=1024",
                                           "model.hidden=19500",
                                           "model.samples=512",
                                           "model.longest=8",
                                           "model.dropout=0",
                                           "trainer.intra_op_threads=" + std::to_string(at::get_num_threads())};
    std::vector<std::string> without = size;
    without.insert(without.end(), {"trainer.guards.check_weights=false", "trainer.guards.snapshot_every_n_steps=0"});
    Setup off(without, folder / "off"), on(size, folder / "on");
    const int steps = 2;
    const Comparison c = compare(
        [&] {
          device::memory::set_enabled(false);
          off.trainer->run_steps(steps);
        },
        [&] {
          device::memory::set_enabled(true);
          on.trainer->run_steps(steps);
        },
        6, 1);
    const double percent = (1 / c.estimate.ratio - 1) * 100;
    fmt::print("guards and accounting: off {:.1f} ms, on {:.1f} ms a step: {:+.2f} % [{:+.2f}, {:+.2f}]\n",
               c.a_seconds * 1e3 / steps, c.b_seconds * 1e3 / steps, percent, (1 / c.estimate.interval.high - 1) * 100,
               (1 / c.estimate.interval.low - 1) * 100);
    fmt::print("{{\"guards_percent\": {}, \"step_milliseconds\": {}}}\n", percent, c.a_seconds * 1e3 / steps);
  }
  std::filesystem::remove_all(folder);
  return 0;
}
