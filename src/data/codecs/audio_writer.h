// WAV and FLAC bytes from float audio: for the generators, tests and tools. Samples are clipped to [-1, 1].
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace redline::data {

enum class WavEncoding : uint8_t { Pcm8, Pcm16, Pcm24, Pcm32, Float32, Float64 };

struct WavOptions {
  WavEncoding encoding = WavEncoding::Pcm16;
  bool extensible = false;
};

// `samples` is interleaved when there is more than one channel.
std::string encode_wav(std::span<const float> samples, int32_t rate, int32_t channels = 1,
                       const WavOptions& options = {});

struct FlacOptions {
  int bits = 16;  // 8 to 24
  int compression_level = 5;
  bool known_length = true;  // false leaves the number of frames open, as streaming encoders do
};
std::string encode_flac(std::span<const float> samples, int32_t rate, int32_t channels = 1,
                        const FlacOptions& options = {});

}  // namespace redline::data
