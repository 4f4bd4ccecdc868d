// Sample-rate conversion: a Kaiser-windowed sinc evaluated as a polyphase filter bank. One bank per pair of rates, made
// once and shared. 64 zero crossings and a stop band below -100 dB: better than training needs, because on a CPU the
// filter is small beside FLAC decoding. Result length is ceil(n * out / in), aligned so that sample 0 stays sample 0
// (no delay).
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

namespace redline::data {

inline constexpr int32_t kMinSampleRate = 100, kMaxSampleRate = 1'000'000;

class Resampler {
 public:
  // Rates within [kMinSampleRate, kMaxSampleRate]. Thread-safe; the few banks in use are kept.
  static std::shared_ptr<const Resampler> get(int32_t rate_in, int32_t rate_out);
  Resampler(int32_t rate_in, int32_t rate_out);

  int64_t output_length(int64_t input_length) const;
  // out.size() == output_length(in.size()).
  void run(std::span<const float> in, std::span<float> out) const;

 private:
  void run_edge(std::span<const float> in, std::span<float> out, int64_t begin, int64_t end) const;

  int64_t up_ = 1, down_ = 1;  // reduced out / in
  int64_t phases_ = 1;         // rows of the bank; up_ when exact, else interpolated
  bool exact_ = true;
  int64_t half_taps_ = 0, taps_ = 0;
  std::vector<float> bank_;  // [phases_ + 1][taps_]
};

}  // namespace redline::data
