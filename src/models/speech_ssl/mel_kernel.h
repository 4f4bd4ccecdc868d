// Mel features of one signal without a tensor in sight: eight frames at a time, each in its own vector lane, from the
// windowed samples through a real FFT, the power spectrum and the (sparse) filterbank to the logarithm. Nothing larger
// than the FFT's two buffers is kept, where torch.stft writes framed input and complex output to memory. Workers call
// it for cached features, the task for batches.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace redline::models::speech {

class MelKernel {
 public:
  struct Settings {
    int64_t n_fft = 512, hop = 160;
    double preemph = 0.97;  // 0 = none
    bool log = true, clamp_guard = false;
    float guard = 5.9604644775390625e-08f;
    int64_t num_filters = 80;
  };
  // window: at most n_fft values, centred; filterbank: [num_filters][n_fft / 2 + 1]. n_fft is a power of two, at
  // least 16.
  MelKernel(const Settings& settings, std::span<const float> window, std::span<const float> filterbank);
  static bool supports(int64_t n_fft);

  const Settings& settings() const { return settings_; }

  // emphasised: n_fft / 2 zeros, the pre-emphasised signal, and zeros up to num_frames * hop + n_fft values. Writes
  // out[frame][num_filters] for frames [first, last).
  void frames(const float* emphasised, int64_t first, int64_t last, float* out) const;

  // Lays a signal out for frames(): pre-emphasis y0 = x0, yt = xt - preemph * x(t-1), zeros around. `emphasised` holds
  // `capacity` values.
  void emphasise(std::span<const float> signal, float* emphasised, int64_t capacity) const;

  // The whole way for one clip: out[num_frames][num_filters], normalised per feature. `scratch` is reused from call to
  // call.
  void clip_features(std::span<const float> clip, int64_t num_frames, float* out, std::vector<float>& scratch) const;

 private:
  struct Filter {
    int64_t first_bin, offset, count;  // weights_[offset, offset + count) for bins first_bin...
  };
  Settings settings_;
  std::vector<float> window_;           // n_fft values
  int64_t window_first_, window_last_;  // where it is not zero
  std::vector<float> twiddles_;         // for each radix-4 pass and j: w1, w2, w3 as (re, im)
  std::vector<float> split_;            // exp(-2 pi i k / n_fft), k = 0..n_fft/2
  std::vector<Filter> filters_;
  std::vector<float> weights_;
};

// In place over out[frames][features]: per feature, subtract the mean and divide by the unbiased standard deviation +
// 1e-5 (one frame: 0).
void normalise_per_feature(float* frames, int64_t num_frames, int64_t num_features);

}  // namespace redline::models::speech
