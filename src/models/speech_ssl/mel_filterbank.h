// Slaney's mel filterbank as librosa.filters.mel makes it (htk=False, norm="slaney" or none), and the analysis windows.
// Slaney's scale: 200/3 Hz per mel below 1000 Hz, then logarithmic with 27 steps per factor 6.4 (Auditory Toolbox,
// 1998).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace redline::models::speech {

// [num_filters][n_fft / 2 + 1], row-major. `norm` "slaney" scales each filter to unit area; absent leaves peaks at 1.
std::vector<float> mel_filterbank(int64_t sample_rate, int64_t n_fft, int64_t num_filters, double low_hz,
                                  double high_hz, const std::optional<std::string>& norm);

// Symmetric window (periodic=false): "hann", "hamming", "blackman" or "bartlett".
std::vector<float> analysis_window(const std::string& kind, int64_t length);

}  // namespace redline::models::speech
