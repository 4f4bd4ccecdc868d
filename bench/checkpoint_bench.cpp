// What a checkpoint costs a run, and what checking costs a load. The run is a real one (a perceptron with fused AdamW
// whose model and moments make 100 MB, both cores busy), because a writer thread that competes for cores is the whole
// question. Bars: extra wall time per asynchronous checkpoint <= 50 % of a synchronous one's; total overhead <= 3.5 %
// at the chosen interval; loading 1 GB with CRC32C at >= 50 % of the speed of plainly reading the same bytes into fresh
// memory. The last line is JSON for workloads/checkpoint.py.
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <torch/torch.h>
#include <unistd.h>

#include <cstdlib>
#include <thread>

#include "core/time.h"
#include "measure/statistics.h"
#include "train/checkpoint/generation.h"
#include "train/checkpoint/interval.h"
#include "train/checkpoint/store.h"

namespace redline::bench {
namespace {

namespace fs = std::filesystem;
using measure::median;
using train::CheckpointConfig;
using train::CheckpointState;
using train::CheckpointStore;

// A job whose state is 100 MB: 8.7 M parameters and two moments each.
class Job {
 public:
  Job() {
    torch::manual_seed(1);
    for (int64_t i = 0; i < kLayers; ++i) {
      weights_.push_back(torch::randn({kWidth, kWidth}) * 0.02);
      averages_.push_back(torch::zeros({kWidth, kWidth}));
      squares_.push_back(torch::zeros({kWidth, kWidth}));
      steps_.push_back(torch::tensor(0.0f));
    }
    input_ = torch::randn({48, kWidth});
  }

  void step() {
    torch::Tensor x = input_;
    for (torch::Tensor& weight : weights_) {
      weight.requires_grad_(true);
      x = torch::gelu(x.mm(weight));
    }
    const auto gradients = torch::autograd::grad({x.pow(2).mean()}, weights_);
    const torch::NoGradGuard guard;
    for (torch::Tensor& one : steps_) one += 1;
    std::vector<torch::Tensor> plain;
    for (const torch::Tensor& weight : weights_) plain.push_back(weight.detach());
    at::_fused_adamw_(plain, gradients, averages_, squares_, {}, steps_, 1e-4, 0.9, 0.98, 1e-3, 1e-8, false, false);
  }

  CheckpointState state() const {
    CheckpointState state;
    for (size_t i = 0; i < weights_.size(); ++i) {
      const std::string name = "layer." + std::to_string(i);
      state.model.emplace_back(name, weights_[i]);
      state.optimizer.emplace_back(name + ".exp_avg", averages_[i]);
      state.optimizer.emplace_back(name + ".exp_avg_sq", squares_[i]);
    }
    state.state_json = "{}";
    return state;
  }

 private:
  static constexpr int64_t kLayers = 33, kWidth = 512;
  std::vector<torch::Tensor> weights_, averages_, squares_, steps_;
  torch::Tensor input_;
};

enum class Saving { None, Sync, Async };

struct SegmentCost {
  double seconds = 0, stall = 0;
};

// `steps` steps with one save after the first tenth; what is still being written at the end is waited for and counted.
SegmentCost run_segment(Job& job, CheckpointStore& store, Saving saving, int steps, int64_t& step) {
  SegmentCost cost;
  const int64_t begin = now_ns();
  for (int i = 0; i < steps; ++i) {
    job.step();
    ++step;
    if (i != steps / 10 || saving == Saving::None) continue;
    const auto report = saving == Saving::Sync ? store.save_sync(job.state(), step) : store.save(job.state(), step);
    cost.stall = report.stall_seconds;
  }
  store.wait();
  cost.seconds = seconds_between(begin, now_ns());
  return cost;
}

std::string bench_saving(const fs::path& directory, int blocks, double segment_seconds) {
  Job job;
  CheckpointConfig config;
  config.save_top_k = 0;
  CheckpointStore store(directory / "checkpoints", config);
  int64_t step = 0;
  int steps = 20;
  const double per_step = run_segment(job, store, Saving::None, steps, step).seconds / steps;
  steps = static_cast<int>(segment_seconds / per_step);
  for (const Saving saving : {Saving::Sync, Saving::Async})
    run_segment(job, store, saving, steps, step);  // buffers and page cache

  std::vector<double> none, sync, async, stalls, ratios;
  for (int block = 0; block < blocks; ++block) {
    double seconds[3] = {};
    for (const int variant : measure::interleaved_order(3, block)) {
      const SegmentCost cost = run_segment(job, store, static_cast<Saving>(variant), steps, step);
      seconds[variant] += cost.seconds / 2;  // each variant comes twice in a block
      if (static_cast<Saving>(variant) == Saving::Async) stalls.push_back(cost.stall);
    }
    none.push_back(seconds[0]), sync.push_back(seconds[1]), async.push_back(seconds[2]);
  }
  std::vector<double> extra_sync, extra_async;
  for (size_t i = 0; i < none.size(); ++i)
    extra_sync.push_back(sync[i] - none[i]), extra_async.push_back(async[i] - none[i]);
  const double cost_sync = median(extra_sync), cost_async = median(extra_async), stall = median(stalls);
  train::IntervalInput input;
  input.stall_seconds = stall;
  input.slowdown_seconds = store.last_write_cpu_seconds();
  const double interval = train::automatic_interval_seconds({}, input);
  fmt::print("state {:.1f} MB, step {:.1f} ms, segments of {} steps, {} blocks\n", 33 * 3 * 512 * 512 * 4 / 1e6,
             per_step * 1e3, steps, blocks);
  fmt::print(
      "extra wall time per checkpoint: synchronous {:.1f} ms, asynchronous {:.1f} ms = {:.0f} % (bar: <= 50 %)\n",
      cost_sync * 1e3, cost_async * 1e3, 100 * cost_async / cost_sync);
  fmt::print(
      "blocking part of an asynchronous save: median {:.1f} ms, largest {:.1f} ms; writing took {:.0f} ms, {:.0f} ms "
      "of it on a core\n",
      stall * 1e3, *std::max_element(stalls.begin(), stalls.end()) * 1e3, store.last_write_seconds() * 1e3,
      store.last_write_cpu_seconds() * 1e3);
  fmt::print("chosen interval {:.1f} s: total overhead {:.2f} % (bar: <= 3.5 %)\n", interval,
             100 * cost_async / interval);
  return fmt::format(
      "\"async_over_sync\": {}, \"async_extra_seconds\": {}, \"sync_extra_seconds\": {}, \"blocking_seconds\": {}, "
      "\"overhead_percent\": {}, \"interval_seconds\": {}",
      cost_async / cost_sync, cost_async, cost_sync, stall, 100 * cost_async / interval, interval);
}

// Fresh memory for every reading, as a loader has it.
double plain_read_seconds(const fs::path& generation, const std::vector<std::string>& names, int threads) {
  const int64_t begin = now_ns();
  std::vector<std::pair<std::byte*, size_t>> memory;
  for (const std::string& name : names) {
    const int file = ::open((generation / name).c_str(), O_RDONLY);
    const auto bytes = static_cast<size_t>(fs::file_size(generation / name));
    auto* to =
        static_cast<std::byte*>(::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    memory.emplace_back(to, bytes);
    std::vector<std::thread> readers;
    for (int i = 0; i < threads; ++i) {
      readers.emplace_back([&, i] {
        const size_t part = bytes / static_cast<size_t>(threads), first = part * static_cast<size_t>(i);
        const size_t last = i + 1 == threads ? bytes : first + part;
        for (size_t at = first; at < last;) {
          const ssize_t got =
              ::pread(file, to + at, std::min<size_t>(size_t{4} << 20, last - at), static_cast<off_t>(at));
          if (got <= 0) std::abort();
          at += static_cast<size_t>(got);
        }
      });
    }
    for (std::thread& reader : readers) reader.join();
    ::close(file);
  }
  const double seconds = seconds_between(begin, now_ns());
  for (const auto& [to, bytes] : memory) ::munmap(to, bytes);
  return seconds;
}

std::string bench_loading(const fs::path& directory, int blocks) {
  CheckpointState state;
  for (int i = 0; i < 120; ++i) {
    (i < 40 ? state.model : state.optimizer)
        .emplace_back("tensor." + std::to_string(i), torch::randn({1024, 2048 + 128 * (i % 5)}));
  }
  state.state_json = "{}";
  CheckpointConfig config;
  CheckpointStore store(directory / "large", config);
  store.save_sync(state, 1);
  const fs::path generation = directory / "large" / "step-00000001";
  const std::vector<std::string> names = {"model.safetensors", "optimizer.safetensors"};
  double gigabytes = 0;
  for (const std::string& name : names) gigabytes += static_cast<double>(fs::file_size(generation / name)) * 1e-9;

  std::vector<double> one, two, ours;
  for (int block = -1; block < blocks; ++block) {
    double seconds[3] = {};
    for (const int variant : measure::interleaved_order(3, std::max(0, block))) {
      double took = 0;
      if (variant < 2) {
        took = plain_read_seconds(generation, names, variant + 1);
      } else {
        const int64_t begin = now_ns();
        const auto loaded = CheckpointStore::load(generation);
        took = seconds_between(begin, now_ns());
      }
      seconds[variant] += took / 2;
    }
    if (block >= 0) one.push_back(seconds[0]), two.push_back(seconds[1]), ours.push_back(seconds[2]);
  }
  const double best = std::min(median(one), median(two));
  fmt::print(
      "loading {:.2f} GB with CRC32C: {:.2f} GB/s; plain read with 1 thread {:.2f} GB/s, with 2 threads {:.2f} GB/s\n",
      gigabytes, gigabytes / median(ours), gigabytes / median(one), gigabytes / median(two));
  fmt::print("speed against the faster plain read: {:.0f} % (bar: >= 50 %)\n", 100 * best / median(ours));
  return fmt::format("\"load_over_plain_read\": {}, \"load_gigabytes_per_second\": {}", median(ours) / best,
                     gigabytes / median(ours));
}

}  // namespace
}  // namespace redline::bench

int main(int argc, char** argv) {
  using namespace redline::bench;
  const int blocks = argc > 1 ? std::atoi(argv[1]) : 5;
  const fs::path base = argc > 2 ? fs::path(argv[2]) : fs::current_path();
  const fs::path directory = base / ("checkpoint_bench_" + std::to_string(::getpid()));
  fs::create_directories(directory);
  const std::string saving = bench_saving(directory, 4 * blocks, 1.2);
  const std::string loading = bench_loading(directory, std::max(1, blocks / 3));
  fs::remove_all(directory);
  fmt::print("{{{}, {}}}\n", saving, loading);
  return 0;
}
