// The plain path is torch.stft and whole-batch tensor operations, step by step as NeMo's FilterbankFeatures; the fast
// path is MelKernel over all clips of all signals at once, which visits only valid frames.
#include "models/speech_ssl/preprocessor.h"

#include <ATen/Parallel.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

#include "core/check.h"
#include "models/speech_ssl/mel_filterbank.h"
#include "task/keyed_random.h"

namespace redline::models::speech {

namespace {

constexpr double kDeviationGuard = 1e-5;

int64_t stft_pad(const PreprocessorOptions& o) {
  return o.exact_pad ? (o.fft_samples() - o.hop_samples()) / 2 : o.fft_samples() / 2;
}

int64_t round_up(int64_t value, int64_t multiple) {
  return multiple > 0 ? (value + multiple - 1) / multiple * multiple : value;
}

torch::Tensor valid_mask(const torch::Tensor& lengths_B, int64_t extent, torch::Device device) {
  return torch::arange(extent, torch::TensorOptions().dtype(torch::kInt64).device(device)).unsqueeze(0) <
         lengths_B.to(device).unsqueeze(1);
}

// NeMo's normalize_batch on [B, F, T].
torch::Tensor normalise_batch(const torch::Tensor& x_BFT, const torch::Tensor& lengths_B, const std::string& kind) {
  const torch::Tensor mask = valid_mask(lengths_B, x_BFT.size(2), x_BFT.device()).unsqueeze(1);
  const torch::Tensor zeros = torch::zeros({}, x_BFT.options());
  if (kind == "per_feature") {
    const torch::Tensor count = mask.sum(2).to(torch::kFloat32);
    const torch::Tensor mean = torch::where(mask, x_BFT, zeros).sum(2) / count;
    const torch::Tensor deviation_sum = torch::where(mask, x_BFT - mean.unsqueeze(2), zeros).pow(2).sum(2);
    torch::Tensor deviation = torch::sqrt(deviation_sum / (count - 1.0));
    deviation = deviation.masked_fill(deviation.isnan(), 0.0) + kDeviationGuard;
    return ((x_BFT - mean.unsqueeze(2)) / deviation.unsqueeze(2)).masked_fill(~mask, 0.0);
  }
  const torch::Tensor count = (mask.sum({1, 2}) * x_BFT.size(1)).to(torch::kFloat32);
  const torch::Tensor mean = torch::where(mask, x_BFT, zeros).sum({1, 2}) / count;
  const torch::Tensor centred = torch::where(mask, x_BFT - mean.view({-1, 1, 1}), zeros);
  const torch::Tensor deviation = torch::sqrt(centred.pow(2).sum({1, 2}) / (count - 1.0)) + kDeviationGuard;
  return (x_BFT - mean.view({-1, 1, 1})) / deviation.view({-1, 1, 1});
}

}  // namespace

PreprocessorImpl::PreprocessorImpl(const PreprocessorOptions& options) : options_(options) {
  featurizer_ = std::make_shared<FeaturizerImpl>();
  const int64_t n_fft = options.fft_samples();
  const auto window = analysis_window(options.window.value_or("hann"), options.window_samples());
  const auto bank =
      mel_filterbank(options.sample_rate, n_fft, options.features, options.lowfreq,
                     options.highfreq.value_or(static_cast<double>(options.sample_rate) / 2.0), options.mel_norm);
  featurizer_->window = featurizer_->register_buffer("window", torch::tensor(window));
  featurizer_->fb = featurizer_->register_buffer("fb", torch::tensor(bank).view({1, options.features, n_fft / 2 + 1}));
  register_module("featurizer", featurizer_);
}

int64_t PreprocessorImpl::num_frames(int64_t samples) const {
  if (samples == 0) return 0;
  const int64_t padded = samples + 2 * stft_pad(options_) - options_.fft_samples();
  const int64_t frames = padded < 0 ? 0 : padded / options_.hop_samples();
  return frames + (options_.count_last_frame ? 1 : 0);
}

int64_t PreprocessorImpl::padded_frames(int64_t longest_samples) const {
  const int64_t padded = longest_samples + 2 * stft_pad(options_) - options_.fft_samples();
  return round_up(1 + std::max<int64_t>(0, padded) / options_.hop_samples(), options_.pad_to);
}

bool PreprocessorImpl::fast_path_available() const {
  return MelKernel::supports(options_.fft_samples()) && !options_.exact_pad && options_.mag_power == 2.0 &&
         options_.normalize == std::optional<std::string>("per_feature") && featurizer_->fb.device().is_cpu();
}

MelKernel PreprocessorImpl::make_kernel() const {
  const torch::Tensor window = featurizer_->window.contiguous(), bank = featurizer_->fb.contiguous();
  return {{options_.fft_samples(), options_.hop_samples(), options_.preemph.value_or(0.0), options_.log,
           options_.log_zero_guard_type == "clamp", static_cast<float>(options_.guard()), options_.features},
          {window.const_data_ptr<float>(), static_cast<size_t>(window.numel())},
          {bank.const_data_ptr<float>(), static_cast<size_t>(bank.numel())}};
}

std::vector<Features> PreprocessorImpl::forward(const std::vector<Signal>& signals, task::Context& ctx, bool fused) {
  const torch::NoGradGuard no_grad;
  const c10::impl::ExcludeDispatchKeyGuard no_autocast(c10::autocast_dispatch_keyset);
  const int64_t batch = signals.at(0).audio_BL.size(0);
  Features all;
  bool on_cpu = true;
  for (const Signal& signal : signals) on_cpu = on_cpu && signal.audio_BL.device().is_cpu();
  if (fused && fast_path_available() && on_cpu) {
    all = fast(signals, ctx);
  } else {
    int64_t longest = 0;
    for (const Signal& signal : signals) longest = std::max(longest, signal.audio_BL.size(1));
    std::vector<torch::Tensor> audio, lengths;
    for (const Signal& signal : signals) {
      torch::Tensor x = signal.audio_BL.to(torch::kFloat32);
      if (ctx.training() && options_.dither > 0.0)
        x = x + options_.dither * ctx.normal({x.size(0), x.size(1)}, "dither." + signal.name).to(x.device());
      audio.push_back(torch::constant_pad_nd(x, {0, longest - x.size(1)}));
      lengths.push_back(signal.lengths_B.to(torch::kCPU));
    }
    all = reference(torch::cat(audio), torch::cat(lengths));
  }
  std::vector<Features> out;
  for (size_t i = 0; i < signals.size(); ++i) {
    const auto first = static_cast<int64_t>(i) * batch;
    out.push_back({all.x_BTF.narrow(0, first, batch), all.lengths_B.narrow(0, first, batch)});
  }
  return out;
}

Features PreprocessorImpl::reference(const torch::Tensor& audio_BL, const torch::Tensor& lengths_B) const {
  torch::Tensor x = audio_BL;
  torch::Tensor frames_B = torch::empty_like(lengths_B);
  for (int64_t b = 0; b < lengths_B.size(0); ++b) frames_B[b] = num_frames(lengths_B[b].item<int64_t>());
  if (options_.exact_pad) x = torch::constant_pad_nd(x, {stft_pad(options_), stft_pad(options_)});
  if (options_.preemph) {
    const torch::Tensor tail = x.slice(1, 1) - *options_.preemph * x.slice(1, 0, -1);
    x = torch::cat({x.slice(1, 0, 1), tail}, 1).masked_fill(~valid_mask(lengths_B, x.size(1), x.device()), 0.0);
  }
  x = torch::stft(x, options_.fft_samples(), options_.hop_samples(), options_.window_samples(), featurizer_->window,
                  /*center=*/!options_.exact_pad, "constant", /*normalized=*/false, /*onesided=*/true,
                  /*return_complex=*/true);
  x = torch::sqrt(torch::view_as_real(x).pow(2).sum(-1));
  if (options_.mag_power != 1.0) x = x.pow(options_.mag_power);
  x = torch::matmul(featurizer_->fb, x);
  if (options_.log) {
    const double guard = options_.guard();
    x = torch::log(options_.log_zero_guard_type == "clamp" ? torch::clamp_min(x, guard) : x + guard);
  }
  if (options_.normalize) x = normalise_batch(x, frames_B, *options_.normalize);
  x = x.masked_fill(~valid_mask(frames_B, x.size(2), x.device()).unsqueeze(1), options_.pad_value);
  x = torch::constant_pad_nd(x, {0, round_up(x.size(2), options_.pad_to) - x.size(2)}, options_.pad_value);
  return {x.transpose(1, 2).contiguous(), frames_B};
}

Features PreprocessorImpl::fast(const std::vector<Signal>& signals, task::Context& ctx) const {
  struct Clip {
    const float* samples;
    int64_t length, frames, sample_id;
    const std::string* name;
  };
  std::vector<Clip> clips;
  std::vector<torch::Tensor> keep_alive;
  int64_t longest = 0;
  for (const Signal& signal : signals) {
    keep_alive.push_back(signal.audio_BL.to(torch::kFloat32).contiguous());
    const torch::Tensor& audio = keep_alive.back();
    longest = std::max(longest, audio.size(1));
    for (int64_t b = 0; b < audio.size(0); ++b) {
      const int64_t length = signal.lengths_B[b].item<int64_t>();
      REDLINE_CHECK(length >= 0 && length <= audio.size(1), "a clip's length lies within its row");
      clips.push_back({audio.const_data_ptr<float>() + b * audio.size(1), length, num_frames(length),
                       ctx.sample_ids()[static_cast<size_t>(b)], &signal.name});
    }
  }
  const int64_t features = options_.features, padded = padded_frames(longest);
  const auto rows = static_cast<int64_t>(clips.size());
  torch::Tensor x = torch::empty({rows, padded, features}), lengths = torch::empty({rows}, torch::kInt64);
  const MelKernel kernel = make_kernel();
  const bool dither = ctx.training() && options_.dither > 0.0;
  at::parallel_for(0, rows, 1, [&](int64_t begin, int64_t end) {
    std::vector<float> scratch, dithered;
    for (int64_t row = begin; row < end; ++row) {
      const Clip& clip = clips[static_cast<size_t>(row)];
      std::span<const float> signal(clip.samples, static_cast<size_t>(clip.length));
      if (dither) {
        dithered.resize(static_cast<size_t>(clip.length));
        task::normal_run(task::operation_key(ctx.seed(), ctx.step(), "dither." + *clip.name),
                         static_cast<uint64_t>(clip.sample_id), 0, clip.length, dithered.data(),
                         task::best_random_path());
        const auto amount = static_cast<float>(options_.dither);
        for (int64_t i = 0; i < clip.length; ++i)
          dithered[static_cast<size_t>(i)] = clip.samples[i] + amount * dithered[static_cast<size_t>(i)];
        signal = dithered;
      }
      float* out = x.mutable_data_ptr<float>() + row * padded * features;
      kernel.clip_features(signal, clip.frames, out, scratch);
      std::fill(out + clip.frames * features, out + padded * features, static_cast<float>(options_.pad_value));
      lengths.mutable_data_ptr<int64_t>()[row] = clip.frames;
    }
  });
  return {x, lengths};
}

}  // namespace redline::models::speech
