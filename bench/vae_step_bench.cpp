// Forward + backward of the sequence VAE at fixed ragged shapes, without data engine, optimiser or recording: what the
// model's own kernels cost. The peer is bench/vae/peer_step.py with the same lengths. Arguments: MEDIAN BATCH DROPOUT
// STEPS THREADS.
#include <ATen/Parallel.h>
#include <fmt/format.h>
#include <torch/torch.h>

#include <cmath>
#include <cstdlib>

#include "core/time.h"
#include "measure/statistics.h"
#include "models/sequence_vae/task.h"
#include "vae/step_input.h"

namespace redline::bench {
namespace {

int run(int argc, char** argv) {
  const auto number = [&](int index, double fallback) { return argc > index ? std::atof(argv[index]) : fallback; };
  const double median = number(1, 90), dropout = number(3, 0.1);
  const auto batch_size = static_cast<int64_t>(number(2, 4)), steps = static_cast<int64_t>(number(4, 16));
  at::set_num_threads(static_cast<int>(number(5, 2)));
  models::sequence_vae::Options options;
  options.dropout = dropout;
  models::sequence_vae::SequenceVaeTask task(options, 1);
  const std::vector<int64_t> lengths = lengths_for(median, batch_size * steps);
  std::vector<task::Batch> batches;
  double flops = 0.0, tokens = 0.0;
  for (int64_t i = 0; i < steps; ++i) {
    const std::vector<int64_t> part(lengths.begin() + i * batch_size, lengths.begin() + (i + 1) * batch_size);
    batches.push_back(vae_batch(part, i * batch_size, options.vocab_size));
    for (int64_t length : part) {
      flops += task.flops_per_sample(static_cast<double>(length - 2));
      tokens += static_cast<double>(length);
    }
  }
  double forward = 0.0, backward = 0.0;
  const auto pass = [&](bool timed) {
    for (size_t i = 0; i < batches.size(); ++i) {
      task::Context ctx(1, static_cast<int64_t>(i), true, batches[i].sample_ids);
      const int64_t begin = now_ns();
      const task::Loss loss = task.loss(batches[i], ctx);
      const int64_t middle = now_ns();
      loss.value.backward();
      if (!timed) continue;
      forward += seconds_between(begin, middle);
      backward += seconds_between(middle, now_ns());
    }
  };
  pass(false);
  const int64_t cpu_begin = process_cpu_ns();
  pass(true);
  const double cpu_ms = 1e-6 * static_cast<double>(process_cpu_ns() - cpu_begin) / static_cast<double>(steps);
  const double seconds = forward + backward;
  fmt::print(
      "{{\"sequences_per_second\": {:.3f}, \"ms_per_batch\": {:.2f}, \"forward_ms\": {:.2f}, \"backward_ms\": {:.2f}, "
      "\"cpu_ms_per_batch\": {:.2f}, \"gflops\": {:.1f}, \"tokens_per_batch\": {:.1f}}}\n",
      static_cast<double>(batch_size * steps) / seconds, 1e3 * seconds / static_cast<double>(steps),
      1e3 * forward / static_cast<double>(steps), 1e3 * backward / static_cast<double>(steps), cpu_ms,
      flops / seconds * 1e-9, tokens / static_cast<double>(steps));
  return 0;
}

}  // namespace
}  // namespace redline::bench

int main(int argc, char** argv) { return redline::bench::run(argc, argv); }
