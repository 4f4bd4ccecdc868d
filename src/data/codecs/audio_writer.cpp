#include "data/codecs/audio_writer.h"

#include <FLAC/stream_encoder.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <memory>

#include "core/check.h"

namespace redline::data {

namespace {

template <class T>
void append_little(std::string& out, T value) {
  out.append(reinterpret_cast<const char*>(&value), sizeof(T));
}

int64_t to_pcm(float sample, int bits) {
  const double limit = static_cast<double>(int64_t{1} << (bits - 1));
  return static_cast<int64_t>(std::clamp(std::nearbyint(static_cast<double>(sample) * limit), -limit, limit - 1.0));
}

int wav_bits(WavEncoding encoding) {
  switch (encoding) {
    case WavEncoding::Pcm8:
      return 8;
    case WavEncoding::Pcm16:
      return 16;
    case WavEncoding::Pcm24:
      return 24;
    case WavEncoding::Pcm32:
    case WavEncoding::Float32:
      return 32;
    case WavEncoding::Float64:
      return 64;
  }
  return 0;
}

void append_wav_sample(std::string& out, float sample, WavEncoding encoding) {
  switch (encoding) {
    case WavEncoding::Pcm8:
      return append_little(out, static_cast<uint8_t>(to_pcm(sample, 8) + 128));
    case WavEncoding::Pcm16:
      return append_little(out, static_cast<int16_t>(to_pcm(sample, 16)));
    case WavEncoding::Pcm24: {
      const auto value = static_cast<int32_t>(to_pcm(sample, 24));
      out.append(reinterpret_cast<const char*>(&value), 3);
      return;
    }
    case WavEncoding::Pcm32:
      return append_little(out, static_cast<int32_t>(to_pcm(sample, 32)));
    case WavEncoding::Float32:
      return append_little(out, sample);
    case WavEncoding::Float64:
      return append_little(out, static_cast<double>(sample));
  }
}

struct EncoderDeleter {
  void operator()(FLAC__StreamEncoder* encoder) const { FLAC__stream_encoder_delete(encoder); }
};

// Bytes written so far, with a cursor: libFLAC goes back to fill in STREAMINFO.
struct FlacSink {
  std::string bytes;
  size_t position = 0;
};

FLAC__StreamEncoderWriteStatus on_encoder_write(const FLAC__StreamEncoder*, const FLAC__byte buffer[], size_t count,
                                                uint32_t, uint32_t, void* client) {
  auto& sink = *static_cast<FlacSink*>(client);
  sink.bytes.resize(std::max(sink.bytes.size(), sink.position + count));
  std::memcpy(sink.bytes.data() + sink.position, buffer, count);
  sink.position += count;
  return FLAC__STREAM_ENCODER_WRITE_STATUS_OK;
}

FLAC__StreamEncoderSeekStatus on_encoder_seek(const FLAC__StreamEncoder*, FLAC__uint64 offset, void* client) {
  static_cast<FlacSink*>(client)->position = static_cast<size_t>(offset);
  return FLAC__STREAM_ENCODER_SEEK_STATUS_OK;
}

FLAC__StreamEncoderTellStatus on_encoder_tell(const FLAC__StreamEncoder*, FLAC__uint64* offset, void* client) {
  *offset = static_cast<FlacSink*>(client)->position;
  return FLAC__STREAM_ENCODER_TELL_STATUS_OK;
}

}  // namespace

std::string encode_wav(std::span<const float> samples, int32_t rate, int32_t channels, const WavOptions& options) {
  const bool is_float = options.encoding == WavEncoding::Float32 || options.encoding == WavEncoding::Float64;
  const int bits = wav_bits(options.encoding);
  const auto data_bytes = static_cast<uint32_t>(samples.size() * static_cast<size_t>(bits / 8));
  const uint32_t fmt_bytes = options.extensible ? 40 : 16;
  const auto tag = static_cast<uint16_t>(is_float ? 3 : 1);
  std::string out;
  out.reserve(data_bytes + 80);
  out += "RIFF";
  append_little(out, 4 + 8 + fmt_bytes + 8 + data_bytes + (data_bytes & 1));
  out += "WAVEfmt ";
  append_little(out, fmt_bytes);
  append_little(out, options.extensible ? uint16_t{0xFFFE} : tag);
  append_little(out, static_cast<uint16_t>(channels));
  append_little(out, static_cast<uint32_t>(rate));
  append_little(out, static_cast<uint32_t>(rate * channels * (bits / 8)));
  append_little(out, static_cast<uint16_t>(channels * (bits / 8)));
  append_little(out, static_cast<uint16_t>(bits));
  if (options.extensible) {
    append_little(out, uint16_t{22});
    append_little(out, static_cast<uint16_t>(bits));
    append_little(out, uint32_t{0});
    append_little(out, tag);
    out.append("\0\0\0\0\x10\0\x80\0\0\xAA\0\x38\x9B\x71", 14);
  }
  out += "data";
  append_little(out, data_bytes);
  for (const float sample : samples) append_wav_sample(out, sample, options.encoding);
  if (data_bytes & 1) out += '\0';
  return out;
}

std::string encode_flac(std::span<const float> samples, int32_t rate, int32_t channels, const FlacOptions& options) {
  std::vector<FLAC__int32> pcm(samples.size());
  std::transform(samples.begin(), samples.end(), pcm.begin(),
                 [&](float s) { return static_cast<FLAC__int32>(to_pcm(s, options.bits)); });
  const std::unique_ptr<FLAC__StreamEncoder, EncoderDeleter> encoder(FLAC__stream_encoder_new());
  REDLINE_CHECK(encoder != nullptr, "libFLAC gives an encoder");
  FLAC__stream_encoder_set_channels(encoder.get(), static_cast<uint32_t>(channels));
  FLAC__stream_encoder_set_bits_per_sample(encoder.get(), static_cast<uint32_t>(options.bits));
  FLAC__stream_encoder_set_sample_rate(encoder.get(), static_cast<uint32_t>(rate));
  FLAC__stream_encoder_set_compression_level(encoder.get(), static_cast<uint32_t>(options.compression_level));
  FlacSink sink;
  const bool seekable = options.known_length;
  const auto started =
      FLAC__stream_encoder_init_stream(encoder.get(), on_encoder_write, seekable ? on_encoder_seek : nullptr,
                                       seekable ? on_encoder_tell : nullptr, nullptr, &sink);
  REDLINE_CHECK(started == FLAC__STREAM_ENCODER_INIT_STATUS_OK, "rate, channels and bits fit FLAC");
  const auto frames = static_cast<uint32_t>(samples.size() / static_cast<size_t>(channels));
  const bool written = FLAC__stream_encoder_process_interleaved(encoder.get(), pcm.data(), frames) != 0;
  REDLINE_CHECK(FLAC__stream_encoder_finish(encoder.get()) != 0 && written, "encoding to memory does not fail");
  return std::move(sink.bytes);
}

}  // namespace redline::data
