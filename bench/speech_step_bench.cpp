// Forward + backward of the NEST task at a fixed shape, without data engine, optimiser or recording: what the model's
// own kernels cost, and which share of the machine's float GEMM rate the step reaches. The peer is
// bench/speech/nemo_step.py with audio of the same kind and length. Arguments: STEPS BATCH SECONDS FUSED THREADS.
#include <ATen/Parallel.h>
#include <fmt/format.h>
#include <sys/resource.h>
#include <torch/torch.h>

#include <cstdlib>

#include "core/time.h"
#include "measure/statistics.h"
#include "models/speech_ssl/options.h"
#include "models/speech_ssl/speech_ssl_task.h"

namespace redline::bench {
namespace {

models::speech::ModelOptions peer_options(bool fused) {
  models::speech::ModelOptions o;
  o.num_classes = o.quantizer.num_classes = 1024;
  o.preprocessor.features = 80;
  o.preprocessor.window_size = 0.025;
  o.preprocessor.n_fft = 512;
  o.masking.block_size = 40;
  o.masking.mask_prob = 0.01;
  o.masking.allow_overlap = true;
  o.encoder.n_layers = 4;
  o.encoder.d_model = 176;
  o.encoder.subsampling_conv_channels = 256;
  o.encoder.conv_kernel_size = 9;
  o.encoder.dropout_emb = 0.0;
  o.encoder.dropout_att = 0.1;
  o.decoder.use_bias = true;
  o.fused_kernels = fused;
  return o;
}

// Three sines and white noise per clip.
torch::Tensor make_audio(int64_t batch, int64_t samples) {
  const torch::Tensor t = torch::arange(samples, torch::kFloat32) / 16000.0;
  torch::Tensor audio = 0.02 * torch::randn({batch, samples});
  for (int64_t b = 0; b < batch; ++b)
    for (int i = 0; i < 3; ++i)
      audio[b] += 0.1 * torch::sin(2.0 * M_PI * (80.0 + 2920.0 * torch::rand({}).item<double>()) * t);
  return audio;
}

double gemm_gflops() {
  const torch::Tensor a = torch::randn({1024, 1024}), b = torch::randn({1024, 1024});
  std::vector<double> seconds;
  for (int i = 0; i < 12; ++i) {
    const int64_t begin = now_ns();
    const torch::Tensor c = torch::mm(a, b);
    if (i >= 2) seconds.push_back(seconds_between(begin, now_ns()));
  }
  return 2.0 * 1024.0 * 1024.0 * 1024.0 / measure::median(seconds) * 1e-9;
}

double peak_mib() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return static_cast<double>(usage.ru_maxrss) / 1024.0;
}

int run(int argc, char** argv) {
  const auto number = [&](int index, double fallback) { return argc > index ? std::atof(argv[index]) : fallback; };
  const auto steps = static_cast<int64_t>(number(1, 5)), batch_size = static_cast<int64_t>(number(2, 8));
  const double seconds = number(3, 8.0);
  at::set_num_threads(static_cast<int>(number(5, 2)));
  torch::manual_seed(1);
  const auto task = models::speech::make_speech_ssl_task(peer_options(number(4, 1) != 0), 1);
  const auto samples = static_cast<int64_t>(seconds * 16000.0);
  task::Batch batch;
  for (int64_t i = 0; i < batch_size; ++i) batch.sample_ids.push_back(i);
  batch.tensors["audio"] = make_audio(batch_size, samples);
  batch.tensors["noisy_audio"] = batch.at("audio") + 0.3 * make_audio(batch_size, samples);
  batch.tensors["audio_lengths"] = batch.tensors["noisy_audio_lengths"] =
      torch::full({batch_size}, samples, torch::kInt64);
  const double base_mib = peak_mib();
  std::vector<double> total, forward;
  double last_loss = 0.0;
  for (int64_t step = -2; step < steps; ++step) {
    task::Context ctx(1, step + 2, true, batch.sample_ids);
    const int64_t begin = now_ns();
    const task::Loss loss = task->loss(batch, ctx);
    const int64_t middle = now_ns();
    loss.value.backward();
    const int64_t end = now_ns();
    last_loss = loss.value.item<double>();
    for (torch::Tensor& parameter : task->module().parameters()) parameter.mutable_grad().reset();
    if (step < 0) continue;
    total.push_back(seconds_between(begin, end) * 1e3);
    forward.push_back(seconds_between(begin, middle) * 1e3);
  }
  const double peak = peak_mib(), ms = measure::median(total), rate = gemm_gflops();
  const double gflops = static_cast<double>(batch_size) * task->flops_per_sample(seconds) / ms * 1e-6;
  fmt::print(
      "{{\"step_ms\": {:.2f}, \"forward_ms\": {:.2f}, \"backward_ms\": {:.2f}, \"gflops\": {:.1f}, \"gemm_gflops\": "
      "{:.1f}, \"share_of_gemm_rate\": {:.3f}, \"step_mib\": {:.1f}, \"peak_mib\": {:.1f}, \"loss\": {:.4f}}}\n",
      ms, measure::median(forward), ms - measure::median(forward), gflops, rate, gflops / rate, peak - base_mib, peak,
      last_loss);
  return 0;
}

}  // namespace
}  // namespace redline::bench

int main(int argc, char** argv) { return redline::bench::run(argc, argv); }
