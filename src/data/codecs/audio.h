// Decodes WAV and FLAC, and through libsndfile MP3, Ogg, AIFF and AU, from memory or from a file, into float audio:
// cut, mixed down and resampled in one call. Everything a file can get wrong comes back as a BadSample with one
// sentence; nothing is allocated from a header's word alone, and what is decoded and resampled is charged to the sample
// first (data/workers/item_memory.h). Threads: all functions may be called from any thread; the FLAC decoder object and
// scratch memory are per thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <variant>

#include "data/array.h"
#include "data/files/path_guard.h"
#include "data/source.h"

namespace redline::data {

enum class AudioFormat : uint8_t { Wav, Flac, Other };

struct AudioInfo {
  AudioFormat format = AudioFormat::Wav;
  int32_t rate = 0;
  int32_t channels = 0;
  int64_t frames = -1;  // -1: the header does not say (streamed FLAC); decode to know
  double seconds() const { return frames < 0 ? -1.0 : static_cast<double>(frames) / rate; }
};

inline constexpr int32_t kMixDown = -1;

// What is wanted of a file. A source holds one with what all its clips share and says for each where it lies.
struct AudioRequest {
  double offset_seconds = 0.0;
  double duration_seconds = 0.0;          // NaN or <= 0: to the end; a longer wish than the file gives what is there
  int32_t target_rate = 0;                // 0: keep the file's rate
  bool allow_resample = true;             // false: another rate than target_rate is a bad sample
  bool mono = true;                       // false: all channels, [C, L]
  int32_t channel = kMixDown;             // with mono: average of all channels, or this one
  int64_t max_frames = int64_t{1} << 28;  // of the result over all channels; more is refused before allocating
  double max_seconds = 0.0;               // a longer clip is refused, also one whose header does not tell; 0: none

  AudioRequest clip(double offset, double duration) const {
    AudioRequest one = *this;
    one.offset_seconds = offset, one.duration_seconds = duration;
    return one;
  }
};

// Where the stored bytes are: all in memory, or a part of a file of which only what is needed is read.
struct AudioInput {
  AudioInput(std::span<const std::byte> all) : bytes(all), size(all.size()) {}
  AudioInput(const DataFile& from, uint64_t begin, uint64_t count) : file(&from), offset(begin), size(count) {}

  std::span<const std::byte> bytes;  // empty when `file` is set
  const DataFile* file = nullptr;
  uint64_t offset = 0, size = 0;  // in the file
};

struct Audio {
  Array samples;  // F32 [L] (mono) or [C, L]; finite
  int32_t rate = 0;
  int32_t source_rate = 0;
};

using AudioResult = std::variant<Audio, BadSample>;
using AudioInfoResult = std::variant<AudioInfo, BadSample>;

// `name` is how the user knows the sample; it goes into the BadSample only.
AudioResult decode_audio(const AudioInput& input, const std::string& name, const AudioRequest& request);

// Headers only: `head` is the start of the file (64 KiB is plenty) and `file_bytes` its whole size.
AudioInfoResult probe_audio(std::span<const std::byte> head, uint64_t file_bytes, const std::string& name);
// Its head does not tell how long it is: probe_audio needs all of it (MP3, Ogg).
bool length_needs_whole_file(std::span<const std::byte> head);

}  // namespace redline::data
