#include "data/codecs/audio.h"

#include <bit>
#include <cmath>
#include <vector>

#include "data/codecs/audio_parts.h"
#include "data/resample.h"

namespace redline::data {

namespace {

using codecs::Refusal;

constexpr int32_t kMaxChannels = 64;
constexpr size_t kMaxKeptScratch = size_t{16} << 20;  // floats a thread keeps for the next file

bool all_finite(std::span<const float> samples) {
  uint32_t bad = 0;  // an integer OR, because a float reduction would not vectorise
  for (const float sample : samples)
    bad |= static_cast<uint32_t>((std::bit_cast<uint32_t>(sample) & 0x7F800000u) == 0x7F800000u);
  return bad == 0;
}

int64_t count_not_finite(std::span<const float> samples) {
  int64_t count = 0;
  for (const float sample : samples) count += std::isfinite(sample) ? 0 : 1;
  return count;
}

// One sentence for files that are neither WAV nor FLAC.
Refusal refuse_unknown(std::span<const std::byte> bytes) {
  if (bytes.empty()) return {"it has 0 bytes"};
  const char* what = "is in an unknown format";
  const auto starts = [&](const char* magic, size_t at = 0) {
    return bytes.size() >= at + std::strlen(magic) && std::memcmp(bytes.data() + at, magic, std::strlen(magic)) == 0;
  };
  if (starts("OggS")) what = "is an Ogg file";
  if (starts("ID3") ||
      (bytes.size() > 2 && bytes[0] == std::byte{0xFF} && (bytes[1] & std::byte{0xE0}) == std::byte{0xE0}))
    what = "is an MP3 file";
  if (starts("ftyp", 4)) what = "is an MP4/M4A file";
  if (starts(".snd")) what = "is an AU file";
  if (starts("FORM")) what = "is an AIFF file";
  if (starts("RIFF") || starts("RF64")) what = "is a RIFF file without audio";
  return {"it " + std::string(what) + "; allowed formats are WAV and FLAC"};
}

}  // namespace

namespace codecs {

std::optional<Refusal> check_info(const AudioInfo& info) {
  if (info.rate < kMinSampleRate || info.rate > kMaxSampleRate) {
    return Refusal{"its header says a rate of " + std::to_string(info.rate) + " Hz, outside " +
                   std::to_string(kMinSampleRate) + " to " + std::to_string(kMaxSampleRate)};
  }
  if (info.channels < 1 || info.channels > kMaxChannels) {
    return Refusal{"its header says " + std::to_string(info.channels) + " channels; at most " +
                   std::to_string(kMaxChannels) + " are allowed"};
  }
  return std::nullopt;
}

std::variant<FrameRange, Refusal> choose_frames(const AudioInfo& info, const AudioRequest& request) {
  if (request.target_rate > 0 && !request.allow_resample && info.rate != request.target_rate) {
    return Refusal{"its rate is " + std::to_string(info.rate) + " Hz, expected " + std::to_string(request.target_rate)};
  }
  if (request.target_rate > 0 &&
      (info.rate / request.target_rate >= kMaxRateRatio || request.target_rate / info.rate >= kMaxRateRatio)) {
    return Refusal{"its rate of " + std::to_string(info.rate) + " Hz is too far from " +
                   std::to_string(request.target_rate)};
  }
  if (request.mono && request.channel >= info.channels) {
    return Refusal{"channel " + std::to_string(request.channel) + " was asked for, it has " +
                   std::to_string(info.channels)};
  }
  if (info.frames == 0) return Refusal{"it holds no audio"};
  const double first = request.offset_seconds * info.rate;
  const double count = request.duration_seconds * info.rate;
  // Written so that NaN fails too.
  if (!(first >= 0.0 && first < 9e15) || !(count < 9e15))
    return Refusal{"its offset or duration is not a usable number"};
  FrameRange range;
  range.first = std::llround(first);
  if (count > 0.0) range.count = std::max<int64_t>(std::llround(count), 1);
  if (info.frames >= 0) {
    if (range.first >= info.frames) {
      return Refusal{"its offset of " + std::to_string(request.offset_seconds) + " s lies behind its end at " +
                     std::to_string(info.seconds()) + " s"};
    }
    const int64_t rest = info.frames - range.first;
    range.count = range.count < 0 ? rest : std::min(range.count, rest);
    const int32_t out_rate = request.target_rate > 0 ? request.target_rate : info.rate;
    const double out_frames =
        static_cast<double>(range.count) * std::max(1.0, static_cast<double>(out_rate) / info.rate);
    const double planes = request.mono ? 1.0 : info.channels;
    if (out_frames * planes > static_cast<double>(request.max_frames)) {
      return Refusal{"its header promises " + std::to_string(range.count) + " frames, more than the limit of " +
                     std::to_string(request.max_frames)};
    }
  }
  return range;
}

}  // namespace codecs

AudioInfoResult probe_audio(std::span<const std::byte> head, uint64_t file_bytes, const std::string& name) {
  std::variant<AudioInfo, Refusal> result = Refusal{};
  if (codecs::looks_like_wav(head))
    result = codecs::probe_wav(head, file_bytes);
  else if (codecs::looks_like_flac(head))
    result = codecs::probe_flac(head, file_bytes);
  else
    result = refuse_unknown(head);
  if (auto* refusal = std::get_if<Refusal>(&result)) return BadSample{name, std::move(refusal->reason)};
  return std::get<AudioInfo>(result);
}

AudioResult decode_audio(std::span<const std::byte> bytes, const std::string& name, const AudioRequest& request) {
  thread_local std::vector<float> scratch;
  Array decoded;
  bool resample = false;
  int32_t num_planes = 1;
  const auto allocate = [&](const AudioInfo& info, int32_t planes, int64_t frames) -> float* {
    num_planes = planes;
    resample = request.target_rate > 0 && request.target_rate != info.rate;
    if (resample) {
      scratch.resize(static_cast<size_t>(planes * frames));
      return scratch.data();
    }
    decoded = Array::empty(Dtype::F32, request.mono ? Shape{frames} : Shape{planes, frames});
    return decoded.as<float>().data();
  };
  std::variant<codecs::DecodedAudio, Refusal> result = Refusal{};
  if (codecs::looks_like_wav(bytes))
    result = codecs::decode_wav(bytes, request, allocate);
  else if (codecs::looks_like_flac(bytes))
    result = codecs::decode_flac(bytes, request, allocate);
  else
    result = refuse_unknown(bytes);
  if (auto* refusal = std::get_if<Refusal>(&result)) return BadSample{name, std::move(refusal->reason)};

  const auto& [info, frames] = std::get<codecs::DecodedAudio>(result);
  const std::span<const float> stored =
      resample ? std::span<const float>(scratch.data(), static_cast<size_t>(num_planes * frames))
               : std::span<const float>(decoded.as<float>());
  if (!all_finite(stored)) {
    return BadSample{name,
                     "it holds " + std::to_string(count_not_finite(stored)) + " samples that are NaN or infinite"};
  }
  if (!resample) return Audio{std::move(decoded), info.rate, info.rate};

  const auto resampler = Resampler::get(info.rate, request.target_rate);
  const int64_t out_frames = resampler->output_length(frames);
  Array out = Array::empty(Dtype::F32, request.mono ? Shape{out_frames} : Shape{num_planes, out_frames});
  for (int32_t plane = 0; plane < num_planes; ++plane) {
    resampler->run(stored.subspan(static_cast<size_t>(plane * frames), static_cast<size_t>(frames)),
                   out.as<float>().subspan(static_cast<size_t>(plane * out_frames), static_cast<size_t>(out_frames)));
  }
  if (scratch.capacity() > kMaxKeptScratch) std::vector<float>().swap(scratch);
  if (!all_finite(out.as<float>())) return BadSample{name, "its samples are too large to be resampled"};
  return Audio{std::move(out), request.target_rate, info.rate};
}

}  // namespace redline::data
