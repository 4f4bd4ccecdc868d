// A small job for kill campaigns: momentum descent on keyed noise, with the real checkpoint store, run record and
// sample log. Called like `redline train`: chaos_job train RECIPE [key=value ...] --run-dir DIR. RECIPE names a flaw
// for the controls: "none", "forgets_momentum" (not in the checkpoint), "skips_batch" (resumes one batch too far),
// "records_late" (rows are not flushed before a save, so a kill after it loses them).
#include <unistd.h>

#include <cstdio>
#include <cstring>
#include <numeric>

#include "core/error.h"
#include "core/philox.h"
#include "measure/run_record.h"
#include "train/checkpoint/sample_log.h"
#include "train/checkpoint/store.h"

namespace redline {
namespace {

constexpr int64_t kSteps = 60, kSamples = 100, kBatch = 4, kWeights = 300'000, kSaveEvery = 5;

// The plan: a permutation per epoch, drawn from the epoch alone.
std::vector<int64_t> epoch_order(int64_t epoch) {
  std::vector<int64_t> order(kSamples);
  std::iota(order.begin(), order.end(), int64_t{0});
  KeyedStream random(7, static_cast<uint64_t>(epoch), 0, 0);
  for (int64_t i = kSamples - 1; i > 0; --i)
    std::swap(order[static_cast<size_t>(i)], order[static_cast<size_t>(random.uniform_int(0, i))]);
  return order;
}

struct Learner {
  torch::Tensor weight = torch::zeros({kWeights}), momentum = torch::zeros({kWeights});

  double step(const std::vector<int64_t>& samples) {
    torch::Tensor gradient = torch::zeros({kWeights});
    for (int64_t sample : samples) {
      KeyedStream random(3, 0, static_cast<uint64_t>(sample), 0);
      const auto phase = static_cast<float>(random.uniform()), rate = static_cast<float>(random.uniform());
      gradient += weight - torch::sin(torch::arange(kWeights, torch::kFloat32) * rate + phase);
    }
    gradient /= static_cast<double>(samples.size());
    momentum.mul_(0.9).add_(gradient);
    weight.sub_(momentum * 0.05);
    return gradient.pow(2).mean().item<double>();
  }
};

int run_job(const std::string& flaw, const std::filesystem::path& directory) {
  torch::set_num_threads(1);
  const bool resume = std::filesystem::exists(directory / "steps.bin");
  measure::RunWriter record(directory, resume);
  train::CheckpointConfig config;
  config.save_top_k = 0;
  train::CheckpointStore store(
      directory / "checkpoints", config,
      [&](const std::string& kind, const measure::FieldList& fields) { record.event(kind, fields); });
  train::SampleLog samples(directory);
  Learner learner;
  int64_t done = 0;
  if (const auto loaded = store.load_newest()) {
    done = loaded->info.step;
    learner.weight = loaded->state.model[0].second;
    if (flaw != "forgets_momentum") learner.momentum = loaded->state.optimizer[0].second;
  }
  const int64_t skipped = done > 0 && flaw == "skips_batch" ? 1 : 0;
  while (done < kSteps) {
    const int64_t position = (done + skipped) * kBatch;
    const std::vector<int64_t> order = epoch_order(position / kSamples);
    const auto first = order.begin() + position % kSamples;
    const std::vector<int64_t> batch(first, first + kBatch);
    measure::StepRow row;
    row.loss = learner.step(batch);
    row.step = ++done;
    row.epoch = position / kSamples;
    row.samples = kBatch;
    record.step(row);
    samples.step(done, row.epoch, batch);
    if (done % kSaveEvery == 0 || done == kSteps) {
      if (flaw != "records_late") record.flush(), samples.flush();
      store.save({{{"weight", learner.weight}}, {{"momentum", learner.momentum}}, "{}"}, done);
    }
  }
  store.wait();
  return store.degraded() ? static_cast<int>(ExitCode::Disk) : 0;
}

}  // namespace
}  // namespace redline

int main(int argc, char** argv) {
  std::string directory;
  for (int i = 1; i + 1 < argc; ++i) {
    if (std::strcmp(argv[i], "--run-dir") == 0) directory = argv[i + 1];
  }
  try {
    return redline::run_job(argv[2], directory);
  } catch (const redline::Error& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return static_cast<int>(error.code());
  }
}
