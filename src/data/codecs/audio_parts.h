// What the decoders share with audio.cpp: which frames to read and where they go. Not for use outside
// codecs/.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <variant>

#include "data/codecs/audio.h"
#include "data/codecs/refusal.h"

namespace redline::data::codecs {

// Frames [first, first + count) of the file; count -1 = to the end.
struct FrameRange {
  int64_t first = 0, count = -1;
};

// Memory for `planes` planes of `frames` floats each, one after another. Called once, when the exact number of frames
// is known: so a decoder writes straight into the final array, or into scratch when the rate must be changed.
using AllocatePlanes = std::function<float*(const AudioInfo& info, int32_t planes, int64_t frames)>;

struct DecodedAudio {
  AudioInfo info;
  int64_t frames = 0;
};

template <class T>
T load_little(std::span<const std::byte> bytes, size_t offset) {
  T value;
  std::memcpy(&value, bytes.data() + offset, sizeof(T));
  return value;  // the machines we run on are little-endian
}

std::optional<Refusal> check_info(const AudioInfo& info);
// Chooses the frames once the header is known (the request is in seconds) and checks them against max_seconds and
// max_frames.
std::variant<FrameRange, Refusal> choose_frames(const AudioInfo& info, const AudioRequest& request);
// Most frames that a file of unknown length may turn out to have, and why not more.
int64_t most_frames(const AudioInfo& info, const AudioRequest& request);
Refusal refuse_longer(const AudioInfo& info, const AudioRequest& request);
// Bytes that so many stored frames take until the clip is finished: decoded, and resampled when that is asked for.
uint64_t frames_bytes(const AudioInfo& info, const AudioRequest& request, int64_t frames);

bool looks_like_wav(std::span<const std::byte> bytes);
bool looks_like_flac(std::span<const std::byte> bytes);
bool looks_like_sndfile(std::span<const std::byte> bytes);  // asked after the two others
std::variant<AudioInfo, Refusal> probe_wav(std::span<const std::byte> head, uint64_t file_bytes);
std::variant<AudioInfo, Refusal> probe_flac(std::span<const std::byte> head, uint64_t file_bytes);
std::variant<AudioInfo, Refusal> probe_sndfile(std::span<const std::byte> head, uint64_t file_bytes);
std::variant<DecodedAudio, Refusal> decode_sndfile(const AudioInput& input, const AudioRequest& request,
                                                   const AllocatePlanes& allocate);
// `head` is the beginning of the input, all of it when it is in memory.
std::variant<DecodedAudio, Refusal> decode_wav(const AudioInput& input, std::span<const std::byte> head,
                                               const AudioRequest& request, const AllocatePlanes& allocate);
std::variant<DecodedAudio, Refusal> decode_flac(const AudioInput& input, std::span<const std::byte> head,
                                                const AudioRequest& request, const AllocatePlanes& allocate);

}  // namespace redline::data::codecs
