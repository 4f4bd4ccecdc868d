// The FFT is Stockham's autosort form, radix 4 (one radix-2 pass when log2 is odd), on n_fft/2 complex points; the real
// spectrum is split from it afterwards. Lanes are frames, so every step is eight equal scalar programs and the compiler
// needs no shuffles.
#include "models/speech_ssl/mel_kernel.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <numbers>

#include "core/check.h"
#include "models/layers/simd_clones.h"
#include "models/layers/vector_math.h"

namespace redline::models::speech {

namespace mel_detail {

constexpr int64_t kLanes = 8;

// The lanes as one value: the vectoriser cannot prove that the eight streams of a butterfly do not overlap.
typedef float Lanes __attribute__((vector_size(kLanes * sizeof(float)), aligned(alignof(float)), may_alias));

// One radix-4 pass: l groups of m points; data is [point][re, im][lane].
REDLINE_SIMD_CLONES
void radix4_pass(const float* __restrict x, float* __restrict y, int64_t l, int64_t m,
                 const float* __restrict twiddle) {
  const int64_t quarter = l * m * 2, step = m * 2;  // in lanes
  for (int64_t j = 0; j < l; ++j) {
    const float w1r = twiddle[6 * j], w1i = twiddle[6 * j + 1], w2r = twiddle[6 * j + 2], w2i = twiddle[6 * j + 3];
    const float w3r = twiddle[6 * j + 4], w3i = twiddle[6 * j + 5];
    for (int64_t k = 0; k < m; ++k) {
      const Lanes* in = reinterpret_cast<const Lanes*>(x) + (k + j * m) * 2;
      Lanes* out = reinterpret_cast<Lanes*>(y) + (k + 4 * j * m) * 2;
      const Lanes ar = in[0], ai = in[1], br = in[quarter], bi = in[quarter + 1];
      const Lanes cr = in[2 * quarter], ci = in[2 * quarter + 1], dr = in[3 * quarter], di = in[3 * quarter + 1];
      const Lanes sr = ar + cr, si = ai + ci, tr = ar - cr, ti = ai - ci;
      const Lanes ur = br + dr, ui = bi + di, vr = bi - di, vi = dr - br;  // v = -i (b - d)
      const Lanes pr = tr + vr, pi = ti + vi, qr = sr - ur, qi = si - ui, rr = tr - vr, ri = ti - vi;
      out[0] = sr + ur;
      out[1] = si + ui;
      out[step] = pr * w1r - pi * w1i;
      out[step + 1] = pr * w1i + pi * w1r;
      out[2 * step] = qr * w2r - qi * w2i;
      out[2 * step + 1] = qr * w2i + qi * w2r;
      out[3 * step] = rr * w3r - ri * w3i;
      out[3 * step + 1] = rr * w3i + ri * w3r;
    }
  }
}

// The last pass when log2 is odd: one butterfly over halves, no twiddles.
REDLINE_SIMD_CLONES
void radix2_pass(const float* __restrict x, float* __restrict y, int64_t m) {
  const int64_t half = m * 2 * kLanes;
  for (int64_t i = 0; i < half; ++i) {
    y[i] = x[i] + x[half + i];
    y[half + i] = x[i] - x[half + i];
  }
}

REDLINE_SIMD_CLONES
void load_frames(const float* __restrict signal, int64_t hop, const float* __restrict window, int64_t first,
                 int64_t last, float* __restrict z) {
  for (int64_t n = first; n < last; ++n) {
    const float w = window[n];
    float* out = z + n * kLanes;  // sample n is the real (even) or imaginary (odd) part of point n / 2
    for (int64_t lane = 0; lane < kLanes; ++lane) out[lane] = signal[lane * hop + n] * w;
  }
}

// |X_k|^2 of the real transform from the half-size complex one: X_k = E_k + w^k O_k with E, O the even and odd samples'
// spectra.
REDLINE_SIMD_CLONES
void power_spectrum(const float* __restrict z, int64_t half, const float* __restrict split, float* __restrict power) {
  for (int64_t k = 0; k <= half; ++k) {
    const float* a = z + (k == half ? 0 : k) * 2 * kLanes;
    const float* b = z + (k == 0 || k == half ? 0 : half - k) * 2 * kLanes;
    const float wr = split[2 * k], wi = split[2 * k + 1];
    for (int64_t lane = 0; lane < kLanes; ++lane) {
      const float ar = a[lane], ai = a[kLanes + lane], br = b[lane], bi = b[kLanes + lane];
      const float er = 0.5f * (ar + br), ei = 0.5f * (ai - bi);
      const float odd_r = 0.5f * (ai + bi), odd_i = 0.5f * (br - ar);
      const float xr = er + wr * odd_r - wi * odd_i, xi = ei + wr * odd_i + wi * odd_r;
      power[k * kLanes + lane] = xr * xr + xi * xi;
    }
  }
}

REDLINE_SIMD_CLONES
void filter_bins(const float* __restrict power, const float* __restrict weights, int64_t count, float* __restrict out) {
  float sum[kLanes] = {};
  for (int64_t k = 0; k < count; ++k)
    for (int64_t lane = 0; lane < kLanes; ++lane) sum[lane] += weights[k] * power[k * kLanes + lane];
  for (int64_t lane = 0; lane < kLanes; ++lane) out[lane] = sum[lane];
}

REDLINE_SIMD_CLONES
void log_in_place(float* __restrict x, int64_t count, float guard, bool clamp) {
  if (clamp) {
    for (int64_t i = 0; i < count; ++i) x[i] = fast_log(x[i] < guard ? guard : x[i]);
  } else {
    for (int64_t i = 0; i < count; ++i) x[i] = fast_log(x[i] + guard);
  }
}

REDLINE_SIMD_CLONES
void emphasise_run(const float* __restrict x, int64_t count, float factor, float* __restrict y) {
  for (int64_t i = 1; i < count; ++i) y[i] = x[i] - factor * x[i - 1];
}

}  // namespace mel_detail

bool MelKernel::supports(int64_t n_fft) {
  return n_fft >= 16 && n_fft <= (1 << 16) && std::has_single_bit(static_cast<uint64_t>(n_fft));
}

MelKernel::MelKernel(const Settings& settings, std::span<const float> window, std::span<const float> filterbank)
    : settings_(settings) {
  const int64_t n_fft = settings_.n_fft, half = n_fft / 2, bins = half + 1;
  REDLINE_CHECK(supports(n_fft), "the mel kernel's FFT needs a power of two");
  REDLINE_CHECK(static_cast<int64_t>(window.size()) <= n_fft, "the window fits into the FFT");
  REDLINE_CHECK(static_cast<int64_t>(filterbank.size()) == settings_.num_filters * bins,
                "one weight per filter and bin");
  window_.assign(static_cast<size_t>(n_fft), 0.0f);
  window_first_ = (n_fft - static_cast<int64_t>(window.size())) / 2;
  window_last_ = window_first_ + static_cast<int64_t>(window.size());
  std::copy(window.begin(), window.end(), window_.begin() + window_first_);
  const auto turn = [](double fraction) { return -2.0 * std::numbers::pi * fraction; };
  for (int64_t n = half; n >= 4; n /= 4)
    for (int64_t j = 0; j < n / 4; ++j)
      for (int64_t power = 1; power <= 3; ++power) {
        const double angle = turn(static_cast<double>(power * j) / static_cast<double>(n));
        twiddles_.push_back(static_cast<float>(std::cos(angle)));
        twiddles_.push_back(static_cast<float>(std::sin(angle)));
      }
  for (int64_t k = 0; k <= half; ++k) {
    const double angle = turn(static_cast<double>(k) / static_cast<double>(n_fft));
    split_.push_back(static_cast<float>(std::cos(angle)));
    split_.push_back(static_cast<float>(std::sin(angle)));
  }
  for (int64_t m = 0; m < settings_.num_filters; ++m) {
    const float* row = filterbank.data() + m * bins;
    int64_t first = 0, last = bins;
    while (first < last && row[first] == 0.0f) ++first;
    while (last > first && row[last - 1] == 0.0f) --last;
    filters_.push_back({first, static_cast<int64_t>(weights_.size()), last - first});
    weights_.insert(weights_.end(), row + first, row + last);
  }
}

void MelKernel::emphasise(std::span<const float> signal, float* emphasised, int64_t capacity) const {
  const int64_t pad = settings_.n_fft / 2;
  const auto count = static_cast<int64_t>(signal.size());
  REDLINE_CHECK(pad + count <= capacity, "the emphasised signal fits its buffer");
  std::memset(emphasised, 0, static_cast<size_t>(pad) * sizeof(float));
  std::memset(emphasised + pad + count, 0, static_cast<size_t>(capacity - pad - count) * sizeof(float));
  if (count == 0) return;
  emphasised[pad] = signal[0];
  mel_detail::emphasise_run(signal.data(), count, static_cast<float>(settings_.preemph), emphasised + pad);
}

void MelKernel::frames(const float* emphasised, int64_t first, int64_t last, float* out) const {
  using mel_detail::kLanes;
  const int64_t n_fft = settings_.n_fft, half = n_fft / 2, filters = settings_.num_filters;
  std::vector<float> buffer_a(static_cast<size_t>(n_fft * kLanes), 0.0f), buffer_b(buffer_a.size());
  std::vector<float> power(static_cast<size_t>((half + 1) * kLanes)), mel(static_cast<size_t>(filters * kLanes));
  // The last group may be short: it starts earlier and repeats frames, so that no lane reads past the signal.
  std::vector<float> tail;
  for (int64_t frame = first; frame < last; frame += kLanes) {
    const int64_t count = std::min(kLanes, last - frame);
    const float* signal = emphasised + frame * settings_.hop;
    if (count < kLanes) {
      tail.assign(static_cast<size_t>((kLanes - 1) * settings_.hop + n_fft), 0.0f);
      std::copy(signal, signal + (count - 1) * settings_.hop + n_fft, tail.begin());
      signal = tail.data();
    }
    std::fill(buffer_a.begin(), buffer_a.begin() + window_first_ * kLanes, 0.0f);
    std::fill(buffer_a.begin() + window_last_ * kLanes, buffer_a.end(), 0.0f);
    mel_detail::load_frames(signal, settings_.hop, window_.data(), window_first_, window_last_, buffer_a.data());
    float *x = buffer_a.data(), *y = buffer_b.data();
    const float* twiddle = twiddles_.data();
    int64_t l = half / 4, m = 1;
    for (; l >= 1; l /= 4, m *= 4) {
      mel_detail::radix4_pass(x, y, l, m, twiddle);
      twiddle += 6 * l;
      std::swap(x, y);
    }
    if (m < half) {
      mel_detail::radix2_pass(x, y, m);
      std::swap(x, y);
    }
    mel_detail::power_spectrum(x, half, split_.data(), power.data());
    for (int64_t f = 0; f < filters; ++f) {
      const Filter& filter = filters_[static_cast<size_t>(f)];
      mel_detail::filter_bins(power.data() + filter.first_bin * kLanes, weights_.data() + filter.offset, filter.count,
                              mel.data() + f * kLanes);
    }
    if (settings_.log) mel_detail::log_in_place(mel.data(), filters * kLanes, settings_.guard, settings_.clamp_guard);
    for (int64_t lane = 0; lane < count; ++lane)
      for (int64_t f = 0; f < filters; ++f)
        out[(frame - first + lane) * filters + f] = mel[static_cast<size_t>(f * kLanes + lane)];
  }
}

void MelKernel::clip_features(std::span<const float> clip, int64_t num_frames, float* out,
                              std::vector<float>& scratch) const {
  const int64_t capacity = std::max(num_frames * settings_.hop, static_cast<int64_t>(clip.size())) + settings_.n_fft;
  scratch.resize(static_cast<size_t>(capacity));
  emphasise(clip, scratch.data(), capacity);
  frames(scratch.data(), 0, num_frames, out);
  normalise_per_feature(out, num_frames, settings_.num_filters);
}

namespace mel_detail {

REDLINE_SIMD_CLONES
void add_rows(const float* __restrict x, int64_t rows, int64_t n, double* __restrict sum) {
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t i = 0; i < n; ++i) sum[i] += static_cast<double>(x[r * n + i]);
}
REDLINE_SIMD_CLONES
void add_squared_rows(const float* __restrict x, int64_t rows, int64_t n, const float* __restrict mean,
                      double* __restrict sum) {
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t i = 0; i < n; ++i) {
      const float d = x[r * n + i] - mean[i];
      sum[i] += static_cast<double>(d * d);
    }
}
REDLINE_SIMD_CLONES
void centre_and_scale(float* __restrict x, int64_t rows, int64_t n, const float* __restrict mean,
                      const float* __restrict deviation) {
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t i = 0; i < n; ++i) x[r * n + i] = (x[r * n + i] - mean[i]) / deviation[i];
}

}  // namespace mel_detail

void normalise_per_feature(float* frames, int64_t num_frames, int64_t num_features) {
  if (num_frames == 0) return;
  const auto n = static_cast<size_t>(num_features);
  std::vector<double> sum(n, 0.0), squares(n, 0.0);
  std::vector<float> mean(n), deviation(n);
  mel_detail::add_rows(frames, num_frames, num_features, sum.data());
  for (size_t i = 0; i < n; ++i) mean[i] = static_cast<float>(sum[i] / static_cast<double>(num_frames));
  mel_detail::add_squared_rows(frames, num_frames, num_features, mean.data(), squares.data());
  for (size_t i = 0; i < n; ++i) {
    const double variance = num_frames > 1 ? squares[i] / static_cast<double>(num_frames - 1) : 0.0;
    deviation[i] = static_cast<float>(std::sqrt(variance)) + 1e-5f;
  }
  mel_detail::centre_and_scale(frames, num_frames, num_features, mean.data(), deviation.data());
}

}  // namespace redline::models::speech
