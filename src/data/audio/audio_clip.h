// What the audio sources share: settings of decoding, reading bytes into a buffer of the thread, and durations from
// headers.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <vector>

#include "data/codecs/audio.h"
#include "data/files/path_guard.h"
#include "data/source.h"

namespace redline::data {

struct AudioSettings {
  int32_t sample_rate = 16000;
  bool allow_resample = true;
  int32_t channel = kMixDown;
  // Clips without a given duration that turn out to be longer are bad samples; 0: none. Not in the fingerprint: it
  // filters and changes no content.
  double max_seconds = 0.0;
  std::string fingerprint() const;
};

// Larger files and tar members are read as far as a clip needs them.
inline constexpr uint64_t kReadInPartsBytes = uint64_t{8} << 20;

// Where a clip lies in its file; duration NaN or 0 = to the end.
struct ClipRange {
  double offset = 0.0, duration = 0.0;
};

// A buffer of the calling thread, reused from sample to sample.
std::vector<std::byte>& thread_bytes();

// Decodes into a sample with the field "audio"; charges Decode.
ReadResult decode_clip(const AudioInput& input, const std::string& name, const ClipRange& range,
                       const AudioSettings& settings, measure::StageClock::Slot& slot);

// Seconds the clip really has, from the file's header; NaN when that cannot be told.
double measure_clip(std::span<const std::byte> head, uint64_t file_bytes, const ClipRange& range);

// Runs `measure` for 0..count-1 on several threads; the results by index. Throws the first thing `measure` throws.
std::vector<double> measure_all(size_t count, const std::function<double(size_t)>& measure);

// Durations found once are kept in `path` for the data set with this fingerprint; empty when there are none. Failure to
// write is not an error.
std::vector<double> load_durations(const std::filesystem::path& path, uint64_t fingerprint, size_t count);
void store_durations(const std::filesystem::path& path, uint64_t fingerprint, const std::vector<double>& durations);

// Opens, or: nullopt and `bad` filled when the file is lost; throws DataError when the guard refuses it (design of
// path_guard.h).
std::optional<DataFile> open_sample(const PathGuard& guard, std::string_view file, const std::string& name,
                                    BadSample& bad);

void count_bytes(measure::StageClock::Slot& slot, uint64_t bytes);

}  // namespace redline::data
