// Sample-rate conversion: a Kaiser-windowed sinc evaluated as a polyphase filter bank. One bank per pair of rates, made
// once and shared. 48 zero crossings on each side: pass band to 0.87 of the lower Nyquist frequency, stop band below
// -96 dB. The result has ceil(n * out / in) samples, without delay: sample 0 stays sample 0.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

namespace redline::data {

inline constexpr int32_t kMinSampleRate = 100, kMaxSampleRate = 1'000'000;
inline constexpr int32_t kMaxRateRatio = 64;  // either way; more would need filters out of proportion

class Resampler {
 public:
  // Rates within the limits above (InternalError otherwise). Thread-safe; the few banks in use are kept.
  static std::shared_ptr<const Resampler> get(int32_t rate_in, int32_t rate_out);
  Resampler(int32_t rate_in, int32_t rate_out);

  int64_t output_length(int64_t input_length) const;
  // out.size() == output_length(in.size()). `in` and `out` do not overlap.
  void run(std::span<const float> in, std::span<float> out) const;

 private:
  // Where output n reads: first input, bank row, and the weight of the next row (0 when the bank is exact).
  struct Tap {
    int64_t first = 0;
    const float* row = nullptr;
    float next_weight = 0.0f;
  };
  Tap tap(int64_t n) const;

  int64_t up_ = 1, down_ = 1;  // reduced out / in
  int64_t phases_ = 1;         // bank rows; up_ when exact, else neighbouring rows are interpolated
  bool exact_ = true;
  int64_t half_ = 0, taps_ = 0;
  std::vector<float> bank_;  // [phases_ + 1][taps_]
};

// The impulse response in input samples, in double: what the bank tabulates (also the tests' reference).
double resample_kernel(double t, double rate_in, double rate_out);

}  // namespace redline::data
