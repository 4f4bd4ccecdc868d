#include "data/audio/resample.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numbers>

#include "core/error.h"
#include "core/philox.h"

namespace redline::data {
namespace {

// The definition, in double, without banks or phases.
std::vector<double> resample_plainly(const std::vector<float>& in, double rate_in, double rate_out) {
  const auto length = static_cast<int64_t>(std::ceil(static_cast<double>(in.size()) * rate_out / rate_in));
  std::vector<double> out(static_cast<size_t>(length));
  for (int64_t n = 0; n < length; ++n) {
    const double t = static_cast<double>(n) * rate_in / rate_out;
    double value = 0.0, sum = 0.0;
    const auto middle = static_cast<int64_t>(t);
    const auto reach = static_cast<int64_t>(60.0 * std::max(1.0, rate_in / rate_out));
    for (int64_t i = middle - reach; i <= middle + reach; ++i) {
      const double weight = resample_kernel(t - static_cast<double>(i), rate_in, rate_out);
      sum += weight;
      if (i >= 0 && i < static_cast<int64_t>(in.size())) value += weight * in[static_cast<size_t>(i)];
    }
    out[static_cast<size_t>(n)] = value / sum;
  }
  return out;
}

std::vector<float> run(const std::vector<float>& in, int32_t rate_in, int32_t rate_out) {
  const auto resampler = Resampler::get(rate_in, rate_out);
  std::vector<float> out(static_cast<size_t>(resampler->output_length(static_cast<int64_t>(in.size()))));
  resampler->run(in, out);
  return out;
}

TEST(Resample, EqualsTheDefinition) {
  KeyedStream draw(1, 0, 0, 0);
  const std::pair<int, int> pairs[] = {{44100, 16000}, {8000, 16000},  {48000, 16000}, {16000, 44100},
                                       {22050, 16000}, {44101, 16000}, {16000, 16001}};
  for (const auto& [rate_in, rate_out] : pairs) {
    std::vector<float> in(1500);
    for (float& x : in) x = static_cast<float>(draw.normal());
    const auto got = run(in, rate_in, rate_out);
    const auto want = resample_plainly(in, rate_in, rate_out);
    ASSERT_EQ(got.size(), want.size());
    for (size_t i = 0; i < got.size(); ++i)
      ASSERT_NEAR(got[i], want[i], 3e-5) << rate_in << " -> " << rate_out << " at " << i;
  }
}

// Signal-to-noise ratio of a resampled sine against the sine sampled at the new rate, away from the ends.
double sine_snr_db(int32_t rate_in, int32_t rate_out, double hertz) {
  std::vector<float> in(static_cast<size_t>(rate_in));
  for (size_t i = 0; i < in.size(); ++i)
    in[i] = static_cast<float>(std::sin(2 * std::numbers::pi * hertz * static_cast<double>(i) / rate_in));
  const auto out = run(in, rate_in, rate_out);
  double signal = 0, noise = 0;
  for (size_t i = out.size() / 5; i < out.size() * 4 / 5; ++i) {
    const double want = std::sin(2 * std::numbers::pi * hertz * static_cast<double>(i) / rate_out);
    signal += want * want;
    noise += (out[i] - want) * (out[i] - want);
  }
  return 10 * std::log10(signal / noise);
}

TEST(Resample, SinesInThePassBandKeepTheirShape) {
  for (const double hertz : {100.0, 440.0, 3000.0, 6900.0}) {
    EXPECT_GT(sine_snr_db(44100, 16000, hertz), 85.0) << hertz;
    EXPECT_GT(sine_snr_db(48000, 16000, hertz), 85.0) << hertz;
    EXPECT_GT(sine_snr_db(16000, 48000, hertz), 85.0) << hertz;
    EXPECT_GT(sine_snr_db(44101, 16000, hertz), 80.0) << hertz;
  }
}

TEST(Resample, TonesAboveTheNewNyquistVanish) {
  for (const double hertz : {8100.0, 10000.0, 20000.0}) {
    std::vector<float> in(44100);
    for (size_t i = 0; i < in.size(); ++i)
      in[i] = static_cast<float>(std::sin(2 * std::numbers::pi * hertz * static_cast<double>(i) / 44100));
    const auto out = run(in, 44100, 16000);
    double peak = 0;
    for (size_t i = 2000; i < 14000; ++i) peak = std::max(peak, std::abs(static_cast<double>(out[i])));
    EXPECT_LT(20 * std::log10(peak), -85.0) << hertz;
  }
}

TEST(Resample, AConstantStaysAndShortInputsWork) {
  const std::vector<float> ones(4000, 1.0f);
  const auto out = run(ones, 16000, 44100);
  for (size_t i = 3000; i < 8000; ++i) ASSERT_NEAR(out[i], 1.0f, 2e-6f);
  EXPECT_EQ(run({1.0f}, 44100, 16000).size(), 1u);
  EXPECT_EQ(run({}, 44100, 16000).size(), 0u);
  EXPECT_EQ(run({1.0f, 2.0f, 3.0f}, 16000, 48000).size(), 9u);
}

TEST(Resample, SampleZeroStaysInPlace) {
  std::vector<float> impulse(2001, 0.0f);
  impulse[1000] = 1.0f;
  const auto out = run(impulse, 16000, 48000);
  EXPECT_EQ(std::max_element(out.begin(), out.end()) - out.begin(), 3000);
}

TEST(Resample, RefusesWhatCodecsMustNotAsk) {
  EXPECT_THROW(Resampler(0, 16000), InternalError);
  EXPECT_THROW(Resampler(1'000'000, 100), InternalError);
}

}  // namespace
}  // namespace redline::data
