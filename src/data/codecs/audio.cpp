#include "data/codecs/audio.h"

#include <bit>
#include <cmath>
#include <vector>

#include "core/strings.h"
#include "data/audio/resample.h"
#include "data/codecs/audio_parts.h"
#include "data/workers/item_memory.h"

namespace redline::data {

namespace {

using codecs::Refusal;

constexpr int32_t kMaxChannels = 64;
constexpr size_t kMaxKeptScratch = size_t{16} << 20;  // floats a thread keeps for the next file
constexpr size_t kFileHeadBytes = size_t{64} << 10, kWideHeadBytes = size_t{16} << 20;

// The decoding thread's memory for audio at its stored rate; given back when a giant has passed, whatever became of it.
class RateScratch {
 public:
  ~RateScratch() {
    if (kept().capacity() > kMaxKeptScratch) std::vector<float>().swap(kept());
  }
  std::vector<float>& floats() { return kept(); }

 private:
  static std::vector<float>& kept() {
    thread_local std::vector<float> floats;
    return floats;
  }
};

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

bool read_head(const AudioInput& input, size_t most, std::vector<std::byte>& head) {
  head.resize(static_cast<size_t>(std::min<uint64_t>(most, input.size)));
  return input.file->read_at(input.offset, head);
}

// Some writers put pictures and text before the audio.
bool begins_with_notes(std::span<const std::byte> head, uint64_t file_bytes) {
  if (codecs::looks_like_wav(head)) return std::holds_alternative<Refusal>(codecs::probe_wav(head, file_bytes));
  return head.size() >= 3 && std::memcmp(head.data(), "ID3", 3) == 0 && !codecs::looks_like_flac(head);
}

// One sentence for files that no decoder here reads.
Refusal refuse_unknown(std::span<const std::byte> bytes) {
  if (bytes.empty()) return {"it has 0 bytes"};
  const char* what = "is in an unknown format";
  const auto starts = [&](const char* magic, size_t at = 0) {
    return bytes.size() >= at + std::strlen(magic) && std::memcmp(bytes.data() + at, magic, std::strlen(magic)) == 0;
  };
  if (starts("ftyp", 4)) what = "is an MP4/M4A file";
  if (starts("FORM")) what = "is an IFF file without AIFF audio";
  if (starts("RIFF") || starts("RF64")) what = "is a RIFF file without audio";
  return {"it " + std::string(what) + "; allowed formats are WAV, FLAC, MP3, Ogg (Vorbis, Opus, FLAC), AIFF and AU"};
}

}  // namespace

namespace codecs {

namespace {

double resampled_share(const AudioInfo& info, const AudioRequest& request) {
  if (request.target_rate <= 0 || request.target_rate == info.rate) return 0.0;
  return static_cast<double>(request.target_rate) / info.rate;
}

double planes_of(const AudioInfo& info, const AudioRequest& request) { return request.mono ? 1.0 : info.channels; }

// One frame more than the seconds hold: lengths in manifests are rounded.
double frames_of_seconds(const AudioInfo& info, const AudioRequest& request) {
  return request.max_seconds > 0.0 && request.duration_seconds <= 0.0 ? request.max_seconds * info.rate + 1.0
                                                                      : static_cast<double>(INT64_MAX / 2);
}

}  // namespace

uint64_t frames_bytes(const AudioInfo& info, const AudioRequest& request, int64_t frames) {
  const double floats =
      planes_of(info, request) * static_cast<double>(frames) * (1.0 + resampled_share(info, request)) + 64.0;
  return static_cast<uint64_t>(std::min(floats * sizeof(float), 9e18));
}

int64_t most_frames(const AudioInfo& info, const AudioRequest& request) {
  const double by_count = static_cast<double>(request.max_frames) / planes_of(info, request) /
                          std::max(1.0, resampled_share(info, request));
  return static_cast<int64_t>(std::min(by_count, frames_of_seconds(info, request)));
}

Refusal refuse_longer(const AudioInfo& info, const AudioRequest& request) {
  if (frames_of_seconds(info, request) <= static_cast<double>(most_frames(info, request)) + 1.0)
    return {"it is longer than max_duration (" + format_double(request.max_seconds) +
            " s), which its header does not tell"};
  return {"it has more frames than the limit of " + std::to_string(request.max_frames)};
}

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
    if (static_cast<double>(range.count) > frames_of_seconds(info, request)) {
      return Refusal{"it is " + format_double(static_cast<double>(range.count) / info.rate) +
                     " s long, more than max_duration (" + format_double(request.max_seconds) + " s)"};
    }
    const int32_t out_rate = request.target_rate > 0 ? request.target_rate : info.rate;
    const double out_frames =
        static_cast<double>(range.count) * std::max(1.0, static_cast<double>(out_rate) / info.rate);
    if (out_frames * planes_of(info, request) > static_cast<double>(request.max_frames)) {
      return Refusal{"its header promises " + std::to_string(range.count) + " frames, " +
                     std::to_string(static_cast<int64_t>(out_frames)) + " when resampled, more than the limit of " +
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
  else if (codecs::looks_like_sndfile(head))
    result = codecs::probe_sndfile(head, file_bytes);
  else
    result = refuse_unknown(head);
  if (auto* refusal = std::get_if<Refusal>(&result)) return BadSample{name, std::move(refusal->reason)};
  return std::get<AudioInfo>(result);
}

bool length_needs_whole_file(std::span<const std::byte> head) {
  return !codecs::looks_like_wav(head) && !codecs::looks_like_flac(head) && codecs::looks_like_sndfile(head);
}

AudioResult decode_audio(const AudioInput& input, const std::string& name, const AudioRequest& request) {
  // Outside a loader too (measuring lengths, noise) the blocks of a stream must add up.
  std::optional<ItemMemory> alone;
  if (!has_item_memory()) alone.emplace(nullptr);
  RateScratch kept;
  std::vector<float>& scratch = kept.floats();
  std::vector<std::byte> file_head;
  std::span<const std::byte> head = input.bytes;
  if (input.file != nullptr) {
    if (!read_head(input, kFileHeadBytes, file_head)) return BadSample{name, "the file could not be read to its end"};
    if (begins_with_notes(file_head, input.size) && !read_head(input, kWideHeadBytes, file_head))
      return BadSample{name, "the file could not be read to its end"};
    head = file_head;
  }
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
  if (codecs::looks_like_wav(head))
    result = codecs::decode_wav(input, head, request, allocate);
  else if (codecs::looks_like_flac(head))
    result = codecs::decode_flac(input, head, request, allocate);
  else if (codecs::looks_like_sndfile(head))
    result = codecs::decode_sndfile(input, request, allocate);
  else
    result = refuse_unknown(head);
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
  if (!all_finite(out.as<float>())) return BadSample{name, "its samples are too large to be resampled"};
  return Audio{std::move(out), request.target_rate, info.rate};
}

}  // namespace redline::data
