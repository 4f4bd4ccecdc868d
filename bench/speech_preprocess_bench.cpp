// The mel features of the clean and the noisy signal of 8 clips of 1.5 to 12 s, in one call for both or in one call
// each, as NeMo makes them. Arguments: CALLS (1 or 2) FUSED THREADS.
#include <ATen/Parallel.h>
#include <fmt/format.h>
#include <torch/torch.h>

#include <cstdlib>

#include "core/time.h"
#include "measure/statistics.h"
#include "models/speech_ssl/preprocessor.h"

namespace redline::bench {
namespace {

int run(int argc, char** argv) {
  const auto number = [&](int index, int fallback) { return argc > index ? std::atoi(argv[index]) : fallback; };
  const bool one_call = number(1, 1) == 1, fused = number(2, 1) != 0;
  at::set_num_threads(number(3, 2));
  models::speech::PreprocessorOptions options;
  options.features = 80;
  options.window_size = 0.025;
  options.n_fft = 512;
  models::speech::Preprocessor preprocessor(options);
  constexpr int64_t kClips = 8, kSecondsStep = 24000;
  std::vector<int64_t> ids, samples;
  for (int64_t b = 0; b < kClips; ++b) {
    ids.push_back(b);
    samples.push_back((b + 1) * kSecondsStep);
  }
  const torch::Tensor lengths = torch::tensor(samples), clean = 0.1 * torch::randn({kClips, samples.back()});
  const torch::Tensor noisy = clean + 0.1 * torch::randn_like(clean);
  const models::speech::Signal signals[2] = {{clean, lengths, "clean"}, {noisy, lengths, "noisy"}};
  std::vector<double> milliseconds;
  for (int64_t step = 0; step < 25; ++step) {
    task::Context ctx(1, step, true, ids);
    const int64_t begin = now_ns();
    if (one_call) {
      preprocessor->forward({signals[0], signals[1]}, ctx, fused);
    } else {
      preprocessor->forward({signals[0]}, ctx, fused);
      preprocessor->forward({signals[1]}, ctx, fused);
    }
    if (step >= 5) milliseconds.push_back(1e3 * seconds_between(begin, now_ns()));
  }
  fmt::print("{{\"preprocess_ms\": {:.3f}}}\n", measure::median(milliseconds));
  return 0;
}

}  // namespace
}  // namespace redline::bench

int main(int argc, char** argv) { return redline::bench::run(argc, argv); }
