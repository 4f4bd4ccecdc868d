// A training step's forward and backward in fp32 and in bf16-mixed, in turns in one process: how much faster the low
// precision is, which share of the machine's bf16 matrix rate it reaches, the peak of tensor memory of both, and how
// far loss and gradients are apart. Arguments: speech|vae|convnext|convnext_t|lss BLOCKS THREADS [fp32|bf16: only that
// one, for a profiler].
#include <ATen/Parallel.h>
#include <fmt/format.h>
#include <torch/torch.h>

#include <cstdlib>
#include <memory>
#include <optional>
#include <string>

#include "convnext/step_input.h"
#include "core/error.h"
#include "core/precision.h"
#include "device/autocast.h"
#include "device/memory.h"
#include "interleave.h"
#include "lss/step_input.h"
#include "models/lift_splat/work_estimate.h"
#include "models/sequence_vae/task.h"
#include "models/speech_ssl/speech_ssl_task.h"
#include "speech/step_input.h"
#include "vae/step_input.h"

namespace redline::bench {
namespace {

struct StepCase {
  std::unique_ptr<task::Task> task;
  task::Batch batch;
  double flops = 0.0;
};

void channels_last(torch::nn::Module& module) {
  for (torch::Tensor& p : module.parameters())
    if (p.dim() == 4) p.set_data(p.contiguous(at::MemoryFormat::ChannelsLast));
}

StepCase speech_case() {
  StepCase out;
  out.task = models::speech::make_speech_ssl_task(speech_peer_options(true), 1);
  out.batch = speech_batch(8, 8 * 16000);
  out.flops = 8.0 * out.task->flops_per_sample(8.0);
  return out;
}

StepCase vae_case() {
  StepCase out;
  const models::sequence_vae::Options options;
  out.task = std::make_unique<models::sequence_vae::SequenceVaeTask>(options, 1);
  const std::vector<int64_t> lengths = lengths_for(400, 4);
  out.batch = vae_batch(lengths, 0, options.vocab_size);
  for (int64_t length : lengths) out.flops += out.task->flops_per_sample(static_cast<double>(length - 2));
  return out;
}

StepCase convnext_case(bool tiny) {
  StepCase out;
  const models::convnext::Options options = convnext_peer_options(tiny, true);
  const int64_t count = tiny ? 8 : 32;
  out.task = models::convnext::make_convnext_task(options, 1);
  out.batch = convnext_batch(options, count);
  out.flops = static_cast<double>(count) * out.task->flops_per_sample(1.0);
  channels_last(out.task->module());
  return out;
}

StepCase lift_splat_case() {
  StepCase out;
  const models::lift_splat::Options options = lift_splat_options("swin_t");
  out.task = std::make_unique<models::lift_splat::LiftSplatTask>(options, 1);
  out.batch = lift_splat_batch(options, 1);
  out.flops = models::lift_splat::product_flops(options, 1, 6);
  channels_last(out.task->module());
  return out;
}

StepCase step_case(const std::string& name) {
  if (name == "speech") return speech_case();
  if (name == "vae") return vae_case();
  if (name == "convnext") return convnext_case(false);
  if (name == "convnext_t") return convnext_case(true);
  if (name == "lss") return lift_splat_case();
  throw ConfigError("The first argument is speech, vae, convnext, convnext_t or lss.");
}

double product_rate(torch::ScalarType type) {
  const torch::Tensor a = torch::rand({1024, 1024}).to(type), b = torch::rand({1024, 1024}).to(type);
  torch::Tensor out = torch::empty({1024, 1024}, type);
  double best = 1e9;
  for (int repeat = 0; repeat < 24; ++repeat) {
    const int64_t begin = now_ns();
    at::mm_out(out, a, b);
    if (repeat >= 4) best = std::min(best, seconds_between(begin, now_ns()));
  }
  return 2.0 * 1024.0 * 1024.0 * 1024.0 / best * 1e-9;
}

// As after an optimiser's step: gradients are gone and every weight is another value, so that making weights ready for
// products is part of every step, as in training.
double step(StepCase& c, Precision precision) {
  for (torch::Tensor& parameter : c.task->module().parameters()) {
    parameter.mutable_grad().reset();
    parameter.unsafeGetTensorImpl()->bump_version();
  }
  task::Context ctx(1, 0, true, c.batch.sample_ids);
  task::Loss loss;
  {
    std::optional<device::AutocastScope> low;
    if (precision != Precision::Fp32) low.emplace(device::DeviceKind::Cpu, precision);
    loss = c.task->loss(c.batch, ctx);
  }
  loss.value.backward();
  return loss.value.item<double>();
}

struct Outcome {
  double loss = 0.0, peak_mib = 0.0;
  torch::Tensor gradients;
};

// Peaks count from the model and its batch; weights made ready for products come on top, for as long as they are held.
Outcome outcome(StepCase& c, Precision precision, double before) {
  step(c, precision);  // what is made once is there
  for (torch::Tensor& parameter : c.task->module().parameters()) parameter.mutable_grad().reset();
  device::memory::begin_step();
  Outcome out;
  out.loss = step(c, precision);
  out.peak_mib = (static_cast<double>(device::memory::stats().step_peak_bytes) - before) / (1 << 20);
  std::vector<torch::Tensor> flat;
  for (const torch::Tensor& parameter : c.task->module().parameters())
    if (parameter.grad().defined()) flat.push_back(parameter.grad().reshape({-1}).to(torch::kFloat64));
  out.gradients = torch::cat(flat);
  return out;
}

int run(int argc, char** argv) {
  device::memory::install();
  const auto number = [&](int index, int64_t fallback) { return argc > index ? std::atoll(argv[index]) : fallback; };
  at::set_num_threads(static_cast<int>(number(3, 2)));
  torch::manual_seed(1);
  StepCase c = step_case(argc > 1 ? argv[1] : "speech");
  const auto blocks = static_cast<int>(number(2, 6));
  if (argc > 4) {
    const Precision precision = std::string(argv[4]) == "bf16" ? Precision::Bf16Mixed : Precision::Fp32;
    const int64_t begin = now_ns();
    for (int i = 0; i < blocks; ++i) step(c, precision);
    fmt::print("{{\"step_ms\": {:.2f}}}\n", 1e3 * seconds_between(begin, now_ns()) / blocks);
    return 0;
  }
  const auto before = static_cast<double>(device::memory::stats().live_bytes);
  const Outcome plain = outcome(c, Precision::Fp32, before);
  for (torch::Tensor& parameter : c.task->module().parameters()) parameter.mutable_grad().reset();
  const double kept = static_cast<double>(plain.gradients.nbytes());  // held for the comparison
  const Outcome low = outcome(c, Precision::Bf16Mixed, before + kept);
  const Comparison times =
      compare([&] { step(c, Precision::Fp32); }, [&] { step(c, Precision::Bf16Mixed); }, blocks, 1);
  const double fp32_rate = product_rate(torch::kFloat32), bf16_rate = product_rate(torch::kBFloat16);
  const double cosine =
      (plain.gradients.dot(low.gradients) / (plain.gradients.norm() * low.gradients.norm())).item<double>();
  fmt::print(
      "{{\"fp32_ms\": {:.2f}, \"bf16_ms\": {:.2f}, \"bf16_time\": {:.3f}, \"bf16_speedup\": {:.3f}, \"speedup_low\": "
      "{:.3f}, "
      "\"speedup_high\": {:.3f}, \"gemm_fp32_gflops\": {:.1f}, \"gemm_bf16_gflops\": {:.1f}, \"share_of_fp32_rate\": "
      "{:.3f}, \"share_of_bf16_rate\": {:.3f}, \"bf16_rate_over_made\": {:.3f}, \"fp32_mib\": {:.1f}, \"bf16_mib\": "
      "{:.1f}, \"memory_ratio\": {:.3f}, "
      "\"loss_difference\": {:.2e}, \"gradient_cosine\": {:.6f}}}\n",
      1e3 * times.a_seconds, 1e3 * times.b_seconds, 1.0 / times.estimate.ratio, times.estimate.ratio,
      times.estimate.interval.low, times.estimate.interval.high, fp32_rate, bf16_rate,
      c.flops / times.a_seconds * 1e-9 / fp32_rate, c.flops / times.b_seconds * 1e-9 / bf16_rate,
      bf16_rate / (c.flops / times.b_seconds * 1e-9), plain.peak_mib, low.peak_mib, low.peak_mib / plain.peak_mib,
      std::abs(low.loss - plain.loss) / std::abs(plain.loss), cosine);
  return 0;
}

}  // namespace
}  // namespace redline::bench

int main(int argc, char** argv) { return redline::bench::run(argc, argv); }
