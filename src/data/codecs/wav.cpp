// WAV from memory: RIFF and RF64, PCM 8/16/24/32, float 32/64, A-law and mu-law (telephones), WAVE_FORMAT_EXTENSIBLE.
// The declared size of the data chunk is believed only when the bytes are there; the two sizes that streaming writers
// leave behind mean "to the end of the file".
#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <vector>

#include "data/codecs/audio_parts.h"
#include "data/workers/item_memory.h"

namespace redline::data::codecs {

namespace {

constexpr int64_t kBlockBytes = int64_t{1} << 20;  // of a large file, read at once
constexpr uint16_t kTagPcm = 1, kTagFloat = 3, kTagALaw = 6, kTagMuLaw = 7, kTagExtensible = 0xFFFE;

struct WavLayout {
  AudioInfo info;
  uint16_t tag = kTagPcm;
  int32_t bits = 0;
  size_t data_offset = 0;
};

bool has_id(std::span<const std::byte> bytes, size_t offset, const char (&id)[5]) {
  return bytes.size() >= offset + 4 && std::memcmp(bytes.data() + offset, id, 4) == 0;
}

const char* wav_codec_name(uint16_t tag) {
  switch (tag) {
    case 2:
      return "Microsoft ADPCM";
    case kTagALaw:
      return "A-law";
    case kTagMuLaw:
      return "mu-law";
    case 0x11:
      return "IMA ADPCM";
    case 0x55:
      return "MP3";
    default:
      return "an unknown codec";
  }
}

bool knows_bits(uint16_t tag, int32_t bits) {
  switch (tag) {
    case kTagPcm:
      return bits == 8 || bits == 16 || bits == 24 || bits == 32;
    case kTagFloat:
      return bits == 32 || bits == 64;
    default:
      return bits == 8;
  }
}

std::optional<Refusal> parse_fmt(std::span<const std::byte> chunk, WavLayout& layout) {
  if (chunk.size() < 16)
    return Refusal{"its fmt chunk has " + std::to_string(chunk.size()) + " bytes; at least 16 are needed"};
  uint16_t tag = load_little<uint16_t>(chunk, 0);
  const int32_t channels = load_little<uint16_t>(chunk, 2);
  const uint32_t rate = load_little<uint32_t>(chunk, 4);
  const int32_t block_align = load_little<uint16_t>(chunk, 12);
  layout.bits = load_little<uint16_t>(chunk, 14);
  if (tag == kTagExtensible) {
    // The rest of the GUID is the same for every format that was once a tag.
    static constexpr unsigned char kGuidTail[14] = {0, 0, 0, 0, 0x10, 0, 0x80, 0, 0, 0xAA, 0, 0x38, 0x9B, 0x71};
    if (chunk.size() < 40) return Refusal{"its extensible fmt chunk is too short"};
    if (std::memcmp(chunk.data() + 26, kGuidTail, sizeof(kGuidTail)) != 0)
      return Refusal{"it holds an unknown codec (sub-format GUID)"};
    tag = load_little<uint16_t>(chunk, 24);
  }
  if (tag != kTagPcm && tag != kTagFloat && tag != kTagALaw && tag != kTagMuLaw) {
    return Refusal{"it holds " + std::string(wav_codec_name(tag)) + " (format tag " + std::to_string(tag) +
                   "); allowed are PCM of 8, 16, 24 or 32 bits, float of 32 or 64 bits, A-law and mu-law"};
  }
  layout.tag = tag;
  if (!knows_bits(tag, layout.bits))
    return Refusal{"it has " + std::to_string(layout.bits) + "-bit " +
                   (tag == kTagFloat ? "floats"
                    : tag == kTagPcm ? "PCM"
                                     : wav_codec_name(tag)) +
                   ", which is not supported"};
  if (channels == 0) return Refusal{"its header says 0 channels"};
  if (block_align != channels * (layout.bits / 8)) return Refusal{"its block size does not fit channels and bits"};
  layout.info.channels = channels;
  layout.info.rate =
      rate <= static_cast<uint32_t>(std::numeric_limits<int32_t>::max()) ? static_cast<int32_t>(rate) : -1;
  return check_info(layout.info);
}

std::variant<WavLayout, Refusal> parse_wav(std::span<const std::byte> head, uint64_t file_bytes) {
  if (head.size() < 12 || !looks_like_wav(head)) return Refusal{"it does not start like a WAV file"};
  WavLayout layout;
  layout.info.format = AudioFormat::Wav;
  bool has_format = false;
  uint64_t rf64_data_bytes = 0;
  uint64_t position = 12;
  while (position + 8 <= head.size()) {
    const size_t at = static_cast<size_t>(position);
    uint64_t size = load_little<uint32_t>(head, at + 4);
    if (has_id(head, at, "data")) {
      if (!has_format) return Refusal{"its data chunk comes before the fmt chunk"};
      const uint64_t available = file_bytes - (position + 8);
      const bool streamed = size >= 0x7FFFF000u && rf64_data_bytes == 0 && size > available;
      if (size == 0xFFFFFFFFu && rf64_data_bytes > 0) size = rf64_data_bytes;
      if (streamed) size = available;
      if (size > available) {
        return Refusal{"it is truncated: the header promises " + std::to_string(size) + " bytes of audio, " +
                       std::to_string(available) + " are there"};
      }
      layout.data_offset = at + 8;
      layout.info.frames = static_cast<int64_t>(size / static_cast<uint64_t>(layout.info.channels * (layout.bits / 8)));
      return layout;
    }
    const uint64_t next = position + 8 + size + (size & 1);
    if (next > file_bytes + 1) return Refusal{"it is truncated inside its header chunks"};
    if (has_id(head, at, "ds64") && size >= 16 && position + 24 <= head.size())
      rf64_data_bytes = load_little<uint64_t>(head, at + 16);
    if (has_id(head, at, "fmt ")) {
      if (position + 8 + size > head.size()) return Refusal{"its fmt chunk is cut off"};
      if (auto refusal = parse_fmt(head.subspan(at + 8, static_cast<size_t>(size)), layout)) return *refusal;
      has_format = true;
    }
    position = next;
  }
  return Refusal{head.size() < file_bytes
                     ? "no audio data was found in its first " + std::to_string(head.size()) + " bytes"
                     : std::string("it has no data chunk")};
}

// Loaders turn one stored sample at p into [-1, 1).
struct LoadU8 {
  static constexpr int kBytes = 1;
  float operator()(const std::byte* p) const {
    return (static_cast<float>(static_cast<uint8_t>(*p)) - 128.0f) * (1.0f / 128.0f);
  }
};
struct LoadI16 {
  static constexpr int kBytes = 2;
  float operator()(const std::byte* p) const {
    int16_t value;
    std::memcpy(&value, p, 2);
    return static_cast<float>(value) * (1.0f / 32768.0f);
  }
};
struct LoadI24 {
  static constexpr int kBytes = 3;
  float operator()(const std::byte* p) const {
    const uint32_t value =
        static_cast<uint32_t>(p[0]) << 8 | static_cast<uint32_t>(p[1]) << 16 | static_cast<uint32_t>(p[2]) << 24;
    return static_cast<float>(static_cast<int32_t>(value)) * (1.0f / 2147483648.0f);
  }
};
struct LoadI32 {
  static constexpr int kBytes = 4;
  float operator()(const std::byte* p) const {
    int32_t value;
    std::memcpy(&value, p, 4);
    return static_cast<float>(value) * (1.0f / 2147483648.0f);
  }
};
struct LoadF32 {
  static constexpr int kBytes = 4;
  float operator()(const std::byte* p) const {
    float value;
    std::memcpy(&value, p, 4);
    return value;
  }
};
struct LoadF64 {
  static constexpr int kBytes = 8;
  float operator()(const std::byte* p) const {
    double value;
    std::memcpy(&value, p, 8);
    constexpr double kMax = std::numeric_limits<float>::max();
    return std::abs(value) <= kMax ? static_cast<float>(value) : std::numeric_limits<float>::quiet_NaN();
  }
};

// ITU-T G.711: a sign, the number of a segment (each twice as wide as the one before) and a place in it.
struct LoadMuLaw {
  static constexpr int kBytes = 1;
  float operator()(const std::byte* p) const {
    constexpr int kBias = 0x84;
    const int code = ~static_cast<uint8_t>(*p) & 0xFF;
    const int size = ((((code & 0x0F) << 3) + kBias) << ((code & 0x70) >> 4)) - kBias;
    return static_cast<float>((code & 0x80) != 0 ? -size : size) * (1.0f / 32768.0f);
  }
};
struct LoadALaw {
  static constexpr int kBytes = 1;
  float operator()(const std::byte* p) const {
    const int code = static_cast<uint8_t>(*p) ^ 0x55, segment = (code & 0x70) >> 4, place = (code & 0x0F) << 4;
    const int size = segment == 0 ? place + 8 : (place + 0x108) << (segment - 1);
    return static_cast<float>((code & 0x80) != 0 ? size : -size) * (1.0f / 32768.0f);
  }
};

template <class Load>
void convert_plane(const std::byte* data, int64_t frames, int32_t channels, int32_t channel, float* out) {
  const Load load;
  if (channels == 1) {
    for (int64_t i = 0; i < frames; ++i) out[i] = load(data + i * Load::kBytes);
    return;
  }
  const int64_t step = int64_t{channels} * Load::kBytes;
  data += int64_t{channel} * Load::kBytes;
  for (int64_t i = 0; i < frames; ++i) out[i] = load(data + i * step);
}

template <class Load>
void mix_planes(const std::byte* data, int64_t frames, int32_t channels, float* out) {
  const Load load;
  const float scale = 1.0f / static_cast<float>(channels);
  const int64_t step = int64_t{channels} * Load::kBytes;
  for (int64_t i = 0; i < frames; ++i) {
    float sum = 0.0f;
    for (int32_t c = 0; c < channels; ++c) sum += load(data + i * step + int64_t{c} * Load::kBytes);
    out[i] = sum * scale;
  }
}

// Planes are `plane_frames` floats apart.
template <class Load>
void convert_wav(const std::byte* data, int64_t frames, int32_t channels, const AudioRequest& request, float* out,
                 int64_t plane_frames) {
  if (!request.mono) {
    for (int32_t c = 0; c < channels; ++c) convert_plane<Load>(data, frames, channels, c, out + c * plane_frames);
  } else if (channels > 1 && request.channel == kMixDown) {
    mix_planes<Load>(data, frames, channels, out);
  } else {
    convert_plane<Load>(data, frames, channels, std::max(request.channel, 0), out);
  }
}

using ConvertWav = void (*)(const std::byte*, int64_t, int32_t, const AudioRequest&, float*, int64_t);
ConvertWav converter_of(const WavLayout& layout) {
  if (layout.tag == kTagFloat) return layout.bits == 32 ? convert_wav<LoadF32> : convert_wav<LoadF64>;
  if (layout.tag == kTagALaw) return convert_wav<LoadALaw>;
  if (layout.tag == kTagMuLaw) return convert_wav<LoadMuLaw>;
  switch (layout.bits) {
    case 8:
      return convert_wav<LoadU8>;
    case 16:
      return convert_wav<LoadI16>;
    case 24:
      return convert_wav<LoadI24>;
    default:
      return convert_wav<LoadI32>;
  }
}

}  // namespace

bool looks_like_wav(std::span<const std::byte> bytes) {
  return (has_id(bytes, 0, "RIFF") || has_id(bytes, 0, "RF64") || has_id(bytes, 0, "BW64")) && has_id(bytes, 8, "WAVE");
}

std::variant<AudioInfo, Refusal> probe_wav(std::span<const std::byte> head, uint64_t file_bytes) {
  auto parsed = parse_wav(head, file_bytes);
  if (auto* refusal = std::get_if<Refusal>(&parsed)) return std::move(*refusal);
  return std::get<WavLayout>(parsed).info;
}

std::variant<DecodedAudio, Refusal> decode_wav(const AudioInput& input, std::span<const std::byte> head,
                                               const AudioRequest& request, const AllocatePlanes& allocate) {
  auto parsed = parse_wav(head, input.size);
  if (auto* refusal = std::get_if<Refusal>(&parsed)) return std::move(*refusal);
  const WavLayout& layout = std::get<WavLayout>(parsed);
  auto chosen = choose_frames(layout.info, request);
  if (auto* refusal = std::get_if<Refusal>(&chosen)) return std::move(*refusal);
  const FrameRange range = std::get<FrameRange>(chosen);

  if (!charge_memory(frames_bytes(layout.info, request, range.count))) return Refusal{too_large_text()};
  const int32_t channels = layout.info.channels;
  const int64_t frame_bytes = int64_t{channels} * (layout.bits / 8);
  const ConvertWav convert = converter_of(layout);
  float* out = allocate(layout.info, request.mono ? 1 : channels, range.count);
  if (input.file == nullptr) {
    const std::byte* data = input.bytes.data() + layout.data_offset + range.first * frame_bytes;
    convert(data, range.count, channels, request, out, range.count);
    return DecodedAudio{layout.info, range.count};
  }
  const uint64_t begin =
      input.offset + layout.data_offset + static_cast<uint64_t>(range.first) * static_cast<uint64_t>(frame_bytes);
  const int64_t block = std::max<int64_t>(1, kBlockBytes / frame_bytes);
  std::vector<std::byte> stored(static_cast<size_t>(std::min(block, range.count) * frame_bytes));
  for (int64_t done = 0; done < range.count; done += block) {
    const int64_t frames = std::min(block, range.count - done);
    const auto piece = std::span(stored).first(static_cast<size_t>(frames * frame_bytes));
    if (!input.file->read_at(begin + static_cast<uint64_t>(done * frame_bytes), piece))
      return Refusal{"the file could not be read to its end; it became shorter or the disk fails"};
    convert(piece.data(), frames, channels, request, out + done, range.count);
  }
  return DecodedAudio{layout.info, range.count};
}

}  // namespace redline::data::codecs
