// What the audio sources share: reading bytes into a buffer of the thread, and durations from
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

// Of what changes the content of a clip besides the file; max_seconds only filters.
std::string audio_fingerprint(const AudioRequest& request);

// Larger files and tar members are read as far as a clip needs them.
inline constexpr uint64_t kReadInPartsBytes = uint64_t{8} << 20;

// A buffer of the calling thread, reused from sample to sample.
std::vector<std::byte>& thread_bytes();

// Decodes into a sample with the field "audio"; charges Decode. max_seconds is asked of clips without a duration only.
ReadResult decode_clip(const AudioInput& input, const std::string& name, AudioRequest clip,
                       measure::StageClock::Slot& slot);

// Seconds there are from `offset` on, from the file's header; NaN when that cannot be told.
double measure_clip(std::span<const std::byte> head, uint64_t file_bytes, double offset);

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
