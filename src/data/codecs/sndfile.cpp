// MP3, Ogg (Vorbis, Opus, FLAC), AIFF and AU through libsndfile, beside the fast paths for WAV and FLAC. libsndfile
// says how long a file is from its own pages, so what is decoded is counted and charged block by block, never taken
// from the header's word. The callbacks are called from C and let no exception through.
#include <sndfile.h>

#include <algorithm>
#include <memory>
#include <vector>

#include "data/codecs/audio_parts.h"
#include "data/workers/item_memory.h"

namespace redline::data::codecs {

namespace {

constexpr size_t kSndWindowBytes = size_t{256} << 10;  // of a large file, read at once
constexpr sf_count_t kSndBlockFrames = 4096;
// A lossy stream may end some blocks before the length that its headers add up to.
constexpr int64_t kSndSlackFrames = 4 * 1152;

// What libsndfile reads from: bytes in memory, or a part of a file through a window.
struct SndInput {
  const AudioInput* input = nullptr;
  sf_count_t position = 0;
  std::vector<std::byte> window;
  uint64_t window_begin = 0;
  bool failed = false;

  size_t read(std::byte* out, size_t count) noexcept {
    if (position < 0 || static_cast<uint64_t>(position) >= input->size) return 0;
    const auto at = static_cast<uint64_t>(position);
    count = static_cast<size_t>(std::min<uint64_t>(count, input->size - at));
    if (input->file == nullptr) {
      std::memcpy(out, input->bytes.data() + at, count);
    } else if (!from_window(at, out, count)) {
      failed = true;
      return 0;
    }
    position += static_cast<sf_count_t>(count);
    return count;
  }

 private:
  bool from_window(uint64_t at, std::byte* out, size_t count) noexcept {
    if (count > kSndWindowBytes) return input->file->read_at(input->offset + at, {out, count});
    if (at < window_begin || at + count > window_begin + window.size()) {
      try {
        window.resize(static_cast<size_t>(std::min<uint64_t>(kSndWindowBytes, input->size - at)));
      } catch (...) {
        return false;
      }
      window_begin = at;
      if (!input->file->read_at(input->offset + at, window)) {
        window.clear();
        return false;
      }
    }
    std::memcpy(out, window.data() + (at - window_begin), count);
    return true;
  }
};

sf_count_t snd_length(void* client) { return static_cast<sf_count_t>(static_cast<SndInput*>(client)->input->size); }

sf_count_t snd_seek(sf_count_t offset, int whence, void* client) {
  auto& in = *static_cast<SndInput*>(client);
  const auto size = static_cast<sf_count_t>(in.input->size);
  const sf_count_t from = whence == SEEK_CUR ? in.position : whence == SEEK_END ? size : 0;
  sf_count_t to = 0;
  if (__builtin_add_overflow(from, offset, &to) || to < 0 || to > size) return -1;
  return in.position = to;
}

sf_count_t snd_read(void* out, sf_count_t count, void* client) {
  if (count <= 0) return 0;
  return static_cast<sf_count_t>(
      static_cast<SndInput*>(client)->read(static_cast<std::byte*>(out), static_cast<size_t>(count)));
}

sf_count_t snd_write(const void*, sf_count_t, void*) { return 0; }

sf_count_t snd_tell(void* client) { return static_cast<SndInput*>(client)->position; }

struct SndCloser {
  void operator()(SNDFILE* file) const { sf_close(file); }
};

struct SndFile {
  SndInput source;
  AudioInfo info;
  std::unique_ptr<SNDFILE, SndCloser> file;  // last: it reads from `source` until it is closed
};

// Empty, or why it would not open.
std::string open_snd(SndFile& snd, const AudioInput& input) {
  static SF_VIRTUAL_IO calls{snd_length, snd_seek, snd_read, snd_write, snd_tell};
  snd.source.input = &input;
  SF_INFO header{};
  snd.file.reset(sf_open_virtual(&calls, SFM_READ, &header, &snd.source));
  if (!snd.file) {
    if (snd.source.failed) return "the file could not be read to its end; it became shorter or the disk fails";
    std::string why = sf_strerror(nullptr);
    while (!why.empty() && (why.back() == '.' || why.back() == '\n')) why.pop_back();
    return "it cannot be decoded: " + why;
  }
  snd.info.format = AudioFormat::Other;
  snd.info.rate = header.samplerate;
  snd.info.channels = header.channels;
  const bool told = header.frames >= 0 && header.frames < int64_t{1} << 48;
  snd.info.frames = told ? header.frames : -1;
  return "";
}

// The frames of one block as the request wants them, behind what the planes hold.
void keep_interleaved(const std::vector<float>& block, int64_t frames, int32_t channels, const AudioRequest& request,
                      std::vector<std::vector<float>>& planes) {
  for (size_t p = 0; p < planes.size(); ++p) {
    std::vector<float>& plane = planes[p];
    for (int64_t i = 0; i < frames; ++i) {
      const float* frame = block.data() + i * channels;
      if (!request.mono) {
        plane.push_back(frame[p]);
      } else if (request.channel != kMixDown) {
        plane.push_back(frame[request.channel]);
      } else {
        float sum = 0.0f;
        for (int32_t c = 0; c < channels; ++c) sum += frame[c];
        plane.push_back(sum / static_cast<float>(channels));
      }
    }
  }
}

}  // namespace

bool looks_like_sndfile(std::span<const std::byte> bytes) {
  const auto starts = [&](const char* magic, size_t at = 0) {
    return bytes.size() >= at + std::strlen(magic) && std::memcmp(bytes.data() + at, magic, std::strlen(magic)) == 0;
  };
  if (starts("OggS") || starts(".snd") || (starts("FORM") && (starts("AIFF", 8) || starts("AIFC", 8)))) return true;
  if (starts("ID3")) return true;  // FLAC behind such a tag was looked for before
  if (bytes.size() < 4 || bytes[0] != std::byte{0xFF}) return false;
  // The first frame of an MPEG stream: sync, a layer, a bit rate and a sample rate that exist.
  const auto second = static_cast<uint8_t>(bytes[1]), third = static_cast<uint8_t>(bytes[2]);
  return (second & 0xE0) == 0xE0 && (second & 0x06) != 0 && (third & 0xF0) != 0xF0 && (third & 0x0C) != 0x0C;
}

std::variant<AudioInfo, Refusal> probe_sndfile(std::span<const std::byte> head, uint64_t file_bytes) {
  const AudioInput input(head);
  SndFile snd;
  if (std::string problem = open_snd(snd, input); !problem.empty()) return Refusal{std::move(problem)};
  if (auto refusal = check_info(snd.info)) return *refusal;
  if (head.size() < file_bytes) snd.info.frames = -1;  // their length is in the whole file
  return snd.info;
}

std::variant<DecodedAudio, Refusal> decode_sndfile(const AudioInput& input, const AudioRequest& request,
                                                   const AllocatePlanes& allocate) {
  SndFile snd;
  if (std::string problem = open_snd(snd, input); !problem.empty()) return Refusal{std::move(problem)};
  if (auto refusal = check_info(snd.info)) return *refusal;
  auto chosen = choose_frames(snd.info, request);
  if (auto* refusal = std::get_if<Refusal>(&chosen)) return std::move(*refusal);
  const FrameRange range = std::get<FrameRange>(chosen);
  if (range.first > 0 && sf_seek(snd.file.get(), range.first, SEEK_SET) != range.first)
    return Refusal{"frame " + std::to_string(range.first) + " cannot be reached"};

  std::vector<std::vector<float>> planes(static_cast<size_t>(request.mono ? 1 : snd.info.channels));
  std::vector<float> block(static_cast<size_t>(kSndBlockFrames * snd.info.channels));
  const int64_t most = most_frames(snd.info, request);
  int64_t done = 0;
  while (range.count < 0 || done < range.count) {
    const sf_count_t wanted =
        range.count < 0 ? kSndBlockFrames : std::min<sf_count_t>(kSndBlockFrames, range.count - done);
    const sf_count_t got = sf_readf_float(snd.file.get(), block.data(), wanted);
    if (got <= 0) break;
    if (done + got > most) return refuse_longer(snd.info, request);
    // A vector that grows holds twice its content for a moment; then the finished clip beside it.
    const uint64_t pieces = 2 * static_cast<uint64_t>(got) * sizeof(float) * planes.size();
    if (!charge_memory(pieces + frames_bytes(snd.info, request, got))) return Refusal{too_large_text()};
    keep_interleaved(block, got, snd.info.channels, request, planes);
    done += got;
  }
  if (snd.source.failed) return Refusal{"the file could not be read to its end; it became shorter or the disk fails"};
  if (done == 0) return Refusal{"it holds no audio"};
  if (snd.info.frames >= 0 && done + kSndSlackFrames < range.count)
    return Refusal{"it is truncated: " + std::to_string(range.first + done) + " of " + std::to_string(snd.info.frames) +
                   " frames are there"};
  float* out = allocate(snd.info, static_cast<int32_t>(planes.size()), done);
  for (const std::vector<float>& plane : planes) out = std::copy(plane.begin(), plane.end(), out);
  return DecodedAudio{snd.info, done};
}

}  // namespace redline::data::codecs
