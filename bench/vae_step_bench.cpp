// Forward + backward of the sequence VAE at fixed ragged shapes, without data engine, optimiser or recording: what the
// model's own kernels cost. The peer is bench/vae/peer_step.py with the same lengths. Arguments: MEDIAN BATCH DROPOUT
// STEPS THREADS.
#include <ATen/Parallel.h>
#include <fmt/format.h>
#include <torch/torch.h>

#include <cmath>
#include <cstdlib>

#include "core/philox.h"
#include "core/time.h"
#include "measure/statistics.h"
#include "models/sequence_vae/task.h"

namespace redline::bench {
namespace {

// Log-normal lengths by quantiles in a fixed scrambled order, so that both programs see the same ones.
std::vector<int64_t> lengths_for(double median, int64_t count) {
  std::vector<int64_t> lengths;
  for (int64_t i = 0; i < count; ++i) {
    const double u = (static_cast<double>((i * 37) % count) + 0.5) / static_cast<double>(count);
    const double z = std::log(u / (1.0 - u)) / 1.702;  // logistic approximation of the normal quantile
    lengths.push_back(std::clamp<int64_t>(static_cast<int64_t>(median * std::exp(0.6 * z)), 4, 998) + 2);
  }
  return lengths;
}

task::Batch make_batch(const std::vector<int64_t>& lengths, int64_t first, int64_t vocab) {
  task::Batch batch;
  const int64_t longest = *std::max_element(lengths.begin(), lengths.end());
  torch::Tensor tokens = torch::zeros({static_cast<int64_t>(lengths.size()), longest}, torch::kInt64);
  for (size_t b = 0; b < lengths.size(); ++b) {
    batch.sample_ids.push_back(first + static_cast<int64_t>(b));
    KeyedStream stream(1, 2, static_cast<uint64_t>(batch.sample_ids.back()), 3);
    int64_t* row = tokens[static_cast<int64_t>(b)].mutable_data_ptr<int64_t>();
    for (int64_t t = 0; t < lengths[b]; ++t) row[t] = stream.uniform_int(3, vocab - 1);
  }
  batch.tensors = {{"tokens", tokens}, {"lengths", torch::tensor(lengths, torch::kInt64)}};
  return batch;
}

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
    batches.push_back(make_batch(part, i * batch_size, options.vocab_size));
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
