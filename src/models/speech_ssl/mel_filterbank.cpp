// Computed in double and rounded once at the end, as numpy does it.
#include "models/speech_ssl/mel_filterbank.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "core/error.h"

namespace redline::models::speech {

namespace {

constexpr double kHzPerMel = 200.0 / 3.0, kBreakHz = 1000.0, kBreakMel = kBreakHz / kHzPerMel;
const double kLogStep = std::log(6.4) / 27.0;

double hz_to_mel(double hz) { return hz < kBreakHz ? hz / kHzPerMel : kBreakMel + std::log(hz / kBreakHz) / kLogStep; }
double mel_to_hz(double mel) {
  return mel < kBreakMel ? mel * kHzPerMel : kBreakHz * std::exp(kLogStep * (mel - kBreakMel));
}

}  // namespace

std::vector<float> mel_filterbank(int64_t sample_rate, int64_t n_fft, int64_t num_filters, double low_hz,
                                  double high_hz, const std::optional<std::string>& norm) {
  const int64_t bins = n_fft / 2 + 1;
  std::vector<double> edges(static_cast<size_t>(num_filters + 2));
  const double low = hz_to_mel(low_hz), high = hz_to_mel(high_hz);
  for (size_t i = 0; i < edges.size(); ++i)
    edges[i] = mel_to_hz(low + (high - low) * static_cast<double>(i) / static_cast<double>(num_filters + 1));
  std::vector<float> bank(static_cast<size_t>(num_filters * bins));
  for (int64_t m = 0; m < num_filters; ++m) {
    const double left = edges[static_cast<size_t>(m)], centre = edges[static_cast<size_t>(m + 1)],
                 right = edges[static_cast<size_t>(m + 2)];
    const double area = norm && *norm == "slaney" ? 2.0 / (right - left) : 1.0;
    for (int64_t k = 0; k < bins; ++k) {
      const double hz = static_cast<double>(k) * static_cast<double>(sample_rate) / static_cast<double>(n_fft);
      const double rise = (hz - left) / (centre - left), fall = (right - hz) / (right - centre);
      bank[static_cast<size_t>(m * bins + k)] = static_cast<float>(std::max(0.0, std::min(rise, fall)) * area);
    }
  }
  return bank;
}

std::vector<float> analysis_window(const std::string& kind, int64_t length) {
  std::vector<float> window(static_cast<size_t>(length));
  for (int64_t n = 0; n < length; ++n) {
    const double phase = 2.0 * std::numbers::pi * static_cast<double>(n) / static_cast<double>(length - 1);
    double value = 0.0;
    if (kind == "hann") {
      value = 0.5 - 0.5 * std::cos(phase);
    } else if (kind == "hamming") {
      value = 0.54 - 0.46 * std::cos(phase);
    } else if (kind == "blackman") {
      value = 0.42 - 0.5 * std::cos(phase) + 0.08 * std::cos(2.0 * phase);
    } else if (kind == "bartlett") {
      value = 1.0 - std::abs(2.0 * static_cast<double>(n) / static_cast<double>(length - 1) - 1.0);
    } else {
      throw ConfigError("model.preprocessor.window is '" + kind + "': expected hann, hamming, blackman or bartlett.");
    }
    window[static_cast<size_t>(n)] = static_cast<float>(value);
  }
  return window;
}

}  // namespace redline::models::speech
