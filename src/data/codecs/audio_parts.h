// What the WAV and FLAC decoders share with audio.cpp: frames to read, and where they go. Not for other rooms or
// sources.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "data/codecs/audio.h"

namespace redline::data::codecs {

// A refusal without the sample's name; audio.cpp adds it.
struct Refusal {
  std::string reason;
};

// Frames [first, first + count) of the file; count -1 = to the end.
struct FrameRange {
  int64_t first = 0, count = -1;
};

// Planar float output in a buffer that is reused by the thread: channel c starts at c * stride. Mixed down to one plane
// on request.
struct PlanarAudio {
  std::vector<float> samples;
  int64_t stride = 0;
  int64_t frames = 0;
  int32_t planes = 0;
};

// Chooses the frames once the header is known (the request is in seconds).
std::variant<FrameRange, Refusal> choose_frames(const AudioInfo& info, const AudioRequest& request);
std::optional<Refusal> check_info(const AudioInfo& info);

std::variant<AudioInfo, Refusal> probe_wav(std::span<const std::byte> head, uint64_t file_bytes);
std::variant<AudioInfo, Refusal> probe_flac(std::span<const std::byte> head, uint64_t file_bytes);
// Return the info and fill `out`; a non-finite sample refuses.
std::variant<AudioInfo, Refusal> decode_wav(std::span<const std::byte> bytes, const AudioRequest& request,
                                            PlanarAudio& out);
std::variant<AudioInfo, Refusal> decode_flac(std::span<const std::byte> bytes, const AudioRequest& request,
                                             PlanarAudio& out);

bool looks_like_wav(std::span<const std::byte> bytes);
bool looks_like_flac(std::span<const std::byte> bytes);

}  // namespace redline::data::codecs
