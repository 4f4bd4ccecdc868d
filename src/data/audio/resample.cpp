#include "data/audio/resample.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <mutex>
#include <numbers>
#include <numeric>

#include "core/check.h"

namespace redline::data {

namespace {

// Kaiser's design formulas (Oppenheim and Schafer, Discrete-Time Signal Processing): attenuation A = 96 dB gives
// beta = 0.1102 (A - 8.7), and a transition of (A - 8) / (2.285 pi 2 kZeros) = 0.128 of Nyquist, here ending at
// Nyquist.
constexpr double kZeros = 48.0, kBeta = 9.62, kRolloff = 0.936;
constexpr int64_t kMaxExactPhases = 1024, kInterpolatedPhases = 512;
constexpr int64_t kLanes = 32;
constexpr size_t kKeptBanks = 8;

double bessel_i0(double x) {
  double sum = 1.0, term = 1.0;
  for (int k = 1; k < 64; ++k) {
    term *= (x / (2.0 * k)) * (x / (2.0 * k));
    sum += term;
    if (term < sum * 1e-18) break;
  }
  return sum;
}

double cutoff_of(double rate_in, double rate_out) { return kRolloff * std::min(1.0, rate_out / rate_in); }

inline float multiply_add(float a, float b, float sum) {
#if defined(__FMA__)
  return __builtin_fmaf(a, b, sum);
#else
  return a * b + sum;
#endif
}

// Many running sums, so that the compiler may vectorise without reassociating and no addition waits for the one before.
float dot(const float* a, const float* b, int64_t count) {
  std::array<float, kLanes> sums{};
  for (int64_t i = 0; i < count; i += kLanes)
    for (size_t lane = 0; lane < kLanes; ++lane)
      sums[lane] = multiply_add(a[i + static_cast<int64_t>(lane)], b[i + static_cast<int64_t>(lane)], sums[lane]);
  for (size_t width = kLanes / 2; width > 0; width /= 2)
    for (size_t lane = 0; lane < width; ++lane) sums[lane] += sums[lane + width];
  return sums[0];
}

}  // namespace

double resample_kernel(double t, double rate_in, double rate_out) {
  const double cutoff = cutoff_of(rate_in, rate_out);
  const double half_width = kZeros / cutoff;
  if (std::abs(t) >= half_width) return 0.0;
  const double x = std::numbers::pi * cutoff * t;
  const double sinc = std::abs(x) < 1e-12 ? 1.0 : std::sin(x) / x;
  const double u = t / half_width;
  return cutoff * sinc * bessel_i0(kBeta * std::sqrt(1.0 - u * u)) / bessel_i0(kBeta);
}

Resampler::Resampler(int32_t rate_in, int32_t rate_out) {
  REDLINE_CHECK(rate_in >= kMinSampleRate && rate_in <= kMaxSampleRate && rate_out >= kMinSampleRate &&
                    rate_out <= kMaxSampleRate,
                "the codecs refuse other rates before they ask for a resampler");
  REDLINE_CHECK(std::max(rate_in, rate_out) / std::min(rate_in, rate_out) <= kMaxRateRatio,
                "the codecs refuse larger ratios");
  const int64_t divisor = std::gcd(rate_in, rate_out);
  up_ = rate_out / divisor;
  down_ = rate_in / divisor;
  exact_ = up_ <= kMaxExactPhases;
  phases_ = exact_ ? up_ : kInterpolatedPhases;
  half_ = static_cast<int64_t>(std::ceil(kZeros / cutoff_of(rate_in, rate_out)));
  taps_ = (2 * half_ + kLanes - 1) / kLanes * kLanes;
  bank_.resize(static_cast<size_t>((phases_ + 1) * taps_));
  for (int64_t phase = 0; phase <= phases_; ++phase) {
    const double fraction = static_cast<double>(phase) / static_cast<double>(phases_);
    std::vector<double> row(static_cast<size_t>(taps_), 0.0);
    for (int64_t k = 0; k < 2 * half_; ++k)
      row[static_cast<size_t>(k)] = resample_kernel(fraction - static_cast<double>(k - half_ + 1), rate_in, rate_out);
    const double sum = std::accumulate(row.begin(), row.end(), 0.0);  // a constant stays that constant
    for (int64_t k = 0; k < taps_; ++k)
      bank_[static_cast<size_t>(phase * taps_ + k)] = static_cast<float>(row[static_cast<size_t>(k)] / sum);
  }
}

std::shared_ptr<const Resampler> Resampler::get(int32_t rate_in, int32_t rate_out) {
  struct Kept {
    int32_t rate_in, rate_out;
    std::shared_ptr<const Resampler> resampler;
  };
  static std::mutex mutex;
  static std::vector<Kept> kept;  // most recently used first
  const std::lock_guard lock(mutex);
  auto found = std::find_if(kept.begin(), kept.end(),
                            [&](const Kept& k) { return k.rate_in == rate_in && k.rate_out == rate_out; });
  if (found == kept.end()) {
    if (kept.size() == kKeptBanks) kept.pop_back();
    found = kept.insert(kept.end(), {rate_in, rate_out, std::make_shared<const Resampler>(rate_in, rate_out)});
  }
  std::rotate(kept.begin(), found, found + 1);
  return kept.front().resampler;
}

int64_t Resampler::output_length(int64_t input_length) const { return (input_length * up_ + down_ - 1) / down_; }

Resampler::Tap Resampler::tap(int64_t n) const {
  const int64_t position = n * down_;
  const int64_t remainder = position % up_;
  Tap tap;
  tap.first = position / up_ - half_ + 1;
  if (exact_) {
    tap.row = bank_.data() + remainder * taps_;
  } else {
    const double fine = static_cast<double>(remainder) * static_cast<double>(phases_) / static_cast<double>(up_);
    const auto phase = static_cast<int64_t>(fine);
    tap.row = bank_.data() + phase * taps_;
    tap.next_weight = static_cast<float>(fine - static_cast<double>(phase));
  }
  return tap;
}

void Resampler::run(std::span<const float> in, std::span<float> out) const {
  const auto length = static_cast<int64_t>(in.size());
  REDLINE_CHECK(static_cast<int64_t>(out.size()) == output_length(length),
                "the caller sizes the result with output_length");
  std::vector<float> edge;  // input around an end, with the silence outside
  for (int64_t n = 0; n < static_cast<int64_t>(out.size()); ++n) {
    const Tap at = tap(n);
    const float* source = in.data() + at.first;
    if (at.first < 0 || at.first + taps_ > length) {
      edge.assign(static_cast<size_t>(taps_), 0.0f);
      const int64_t begin = std::max<int64_t>(0, -at.first), end = std::min(taps_, length - at.first);
      for (int64_t k = begin; k < end; ++k) edge[static_cast<size_t>(k)] = in[static_cast<size_t>(at.first + k)];
      source = edge.data();
    }
    float value = dot(source, at.row, taps_);
    if (!exact_) value += at.next_weight * (dot(source, at.row + taps_, taps_) - value);
    out[static_cast<size_t>(n)] = value;
  }
}

}  // namespace redline::data
