// FLAC from memory through libFLAC. One decoder object per thread is kept and reset between files, because opening one
// allocates; after any refusal it is thrown away. STREAMINFO is read here first, so that sizes are judged before
// libFLAC sees the file.
#include <FLAC/stream_decoder.h>

#include <algorithm>
#include <memory>
#include <vector>

#include "data/codecs/audio_parts.h"

namespace redline::data::codecs {

namespace {

struct StreamInfo {
  AudioInfo info;
  int32_t bits = 0;
  int32_t max_block = 0;
};

size_t skip_id3(std::span<const std::byte> bytes) {
  if (bytes.size() < 10 || std::memcmp(bytes.data(), "ID3", 3) != 0) return 0;
  size_t size = 0;
  for (size_t i = 6; i < 10; ++i) size = size << 7 | (static_cast<size_t>(bytes[i]) & 0x7F);
  return size + 10;
}

std::variant<StreamInfo, Refusal> parse_stream_info(std::span<const std::byte> head) {
  const size_t start = skip_id3(head);
  if (head.size() < start + 42) return Refusal{"it is truncated inside its header"};
  if (std::memcmp(head.data() + start, "fLaC", 4) != 0) return Refusal{"it does not start like a FLAC file"};
  const auto* p = reinterpret_cast<const uint8_t*>(head.data()) + start + 4;
  if ((p[0] & 0x7F) != 0 || p[1] != 0 || p[2] != 0 || p[3] != 34)
    return Refusal{"its first metadata block is not STREAMINFO"};
  p += 4;
  StreamInfo stream;
  stream.info.format = AudioFormat::Flac;
  stream.max_block = p[2] << 8 | p[3];
  stream.info.rate = p[10] << 12 | p[11] << 4 | p[12] >> 4;
  stream.info.channels = (p[12] >> 1 & 7) + 1;
  stream.bits = ((p[12] & 1) << 4 | p[13] >> 4) + 1;
  const uint64_t total =
      uint64_t{p[13] & 15u} << 32 | uint64_t{p[14]} << 24 | uint64_t{p[15]} << 16 | uint64_t{p[16]} << 8 | p[17];
  stream.info.frames = total == 0 ? -1 : static_cast<int64_t>(total);
  if (stream.bits < 4) return Refusal{"its header says " + std::to_string(stream.bits) + " bits per sample"};
  if (stream.max_block < 16) return Refusal{"its header says a block size below 16"};
  if (auto refusal = check_info(stream.info)) return *refusal;
  return stream;
}

// What a decode in progress needs; the callbacks' client data.
struct FlacState {
  std::span<const std::byte> bytes;
  size_t position = 0;
  StreamInfo stream;
  const AudioRequest* request = nullptr;
  FrameRange range;
  float* planes = nullptr;                // final memory when the number of frames is known
  int64_t plane_frames = 0;               // distance between planes
  std::vector<std::vector<float>> grown;  // else
  int64_t done = 0;
  std::string problem;
};

FLAC__StreamDecoderReadStatus on_read(const FLAC__StreamDecoder*, FLAC__byte* buffer, size_t* bytes, void* client) {
  auto& state = *static_cast<FlacState*>(client);
  const size_t count = std::min(*bytes, state.bytes.size() - state.position);
  *bytes = count;
  if (count == 0) return FLAC__STREAM_DECODER_READ_STATUS_END_OF_STREAM;
  std::memcpy(buffer, state.bytes.data() + state.position, count);
  state.position += count;
  return FLAC__STREAM_DECODER_READ_STATUS_CONTINUE;
}

FLAC__StreamDecoderSeekStatus on_seek(const FLAC__StreamDecoder*, FLAC__uint64 offset, void* client) {
  auto& state = *static_cast<FlacState*>(client);
  if (offset > state.bytes.size()) return FLAC__STREAM_DECODER_SEEK_STATUS_ERROR;
  state.position = static_cast<size_t>(offset);
  return FLAC__STREAM_DECODER_SEEK_STATUS_OK;
}

FLAC__StreamDecoderTellStatus on_tell(const FLAC__StreamDecoder*, FLAC__uint64* offset, void* client) {
  *offset = static_cast<FlacState*>(client)->position;
  return FLAC__STREAM_DECODER_TELL_STATUS_OK;
}

FLAC__StreamDecoderLengthStatus on_length(const FLAC__StreamDecoder*, FLAC__uint64* length, void* client) {
  *length = static_cast<FlacState*>(client)->bytes.size();
  return FLAC__STREAM_DECODER_LENGTH_STATUS_OK;
}

FLAC__bool on_eof(const FLAC__StreamDecoder*, void* client) {
  const auto& state = *static_cast<FlacState*>(client);
  return state.position >= state.bytes.size() ? 1 : 0;
}

void on_error(const FLAC__StreamDecoder*, FLAC__StreamDecoderErrorStatus status, void* client) {
  auto& state = *static_cast<FlacState*>(client);
  if (!state.problem.empty()) return;
  switch (status) {
    case FLAC__STREAM_DECODER_ERROR_STATUS_FRAME_CRC_MISMATCH:
      state.problem = "a frame's checksum does not match its content";
      break;
    case FLAC__STREAM_DECODER_ERROR_STATUS_BAD_HEADER:
      state.problem = "a frame header is damaged";
      break;
    case FLAC__STREAM_DECODER_ERROR_STATUS_UNPARSEABLE_STREAM:
      state.problem = "it uses reserved FLAC features";
      break;
    default:
      state.problem = "the frames lost their synchronisation";
  }
}

void convert_plane_i32(const FLAC__int32* in, int64_t count, float scale, float* out) {
  for (int64_t i = 0; i < count; ++i) out[i] = static_cast<float>(in[i]) * scale;
}

void mix_planes_i32(const FLAC__int32* const in[], int32_t channels, int64_t count, float scale, float* out) {
  if (channels == 2) {
    for (int64_t i = 0; i < count; ++i) out[i] = (static_cast<float>(in[0][i]) + static_cast<float>(in[1][i])) * scale;
    return;
  }
  for (int64_t i = 0; i < count; ++i) {
    float sum = 0.0f;
    for (int32_t c = 0; c < channels; ++c) sum += static_cast<float>(in[c][i]);
    out[i] = sum * scale;
  }
}

float* plane_at(FlacState& state, int32_t plane, int64_t count) {
  if (state.planes != nullptr) return state.planes + plane * state.plane_frames + state.done;
  auto& grown = state.grown[static_cast<size_t>(plane)];
  grown.resize(static_cast<size_t>(state.done + count));
  return grown.data() + state.done;
}

FLAC__StreamDecoderWriteStatus on_write(const FLAC__StreamDecoder*, const FLAC__Frame* frame,
                                        const FLAC__int32* const buffer[], void* client) {
  auto& state = *static_cast<FlacState*>(client);
  const int32_t channels = state.stream.info.channels;
  if (static_cast<int32_t>(frame->header.channels) != channels ||
      static_cast<int32_t>(frame->header.bits_per_sample) != state.stream.bits ||
      static_cast<int32_t>(frame->header.sample_rate) != state.stream.info.rate) {
    state.problem = "a frame has another format than the header";
    return FLAC__STREAM_DECODER_WRITE_STATUS_ABORT;
  }
  int64_t count = frame->header.blocksize;
  if (state.range.count >= 0) count = std::min(count, state.range.count - state.done);
  if (state.planes == nullptr && state.done + count > state.request->max_frames) {
    state.problem = "it is longer than " + std::to_string(state.request->max_frames) + " frames";
    return FLAC__STREAM_DECODER_WRITE_STATUS_ABORT;
  }
  if (count <= 0) return FLAC__STREAM_DECODER_WRITE_STATUS_CONTINUE;
  const float scale = 1.0f / static_cast<float>(int64_t{1} << (state.stream.bits - 1));
  if (!state.request->mono) {
    for (int32_t c = 0; c < channels; ++c) convert_plane_i32(buffer[c], count, scale, plane_at(state, c, count));
  } else if (channels > 1 && state.request->channel == kMixDown) {
    mix_planes_i32(buffer, channels, count, scale / static_cast<float>(channels), plane_at(state, 0, count));
  } else {
    convert_plane_i32(buffer[std::max(state.request->channel, 0)], count, scale, plane_at(state, 0, count));
  }
  state.done += count;
  return FLAC__STREAM_DECODER_WRITE_STATUS_CONTINUE;
}

struct FlacDeleter {
  void operator()(FLAC__StreamDecoder* decoder) const { FLAC__stream_decoder_delete(decoder); }
};

struct ThreadDecoder {
  std::unique_ptr<FLAC__StreamDecoder, FlacDeleter> decoder;
  FlacState state;
};

bool ready_decoder(ThreadDecoder& thread) {
  if (thread.decoder) return FLAC__stream_decoder_reset(thread.decoder.get()) != 0;
  thread.decoder.reset(FLAC__stream_decoder_new());
  if (!thread.decoder) return false;
  return FLAC__stream_decoder_init_stream(thread.decoder.get(), on_read, on_seek, on_tell, on_length, on_eof, on_write,
                                          nullptr, on_error, &thread.state) == FLAC__STREAM_DECODER_INIT_STATUS_OK;
}

// Runs the decoder over state.range; the problem, or empty.
std::string run_decoder(ThreadDecoder& thread) {
  FlacState& state = thread.state;
  if (!ready_decoder(thread)) return "the FLAC decoder could not be started";
  FLAC__StreamDecoder* decoder = thread.decoder.get();
  if (!FLAC__stream_decoder_process_until_end_of_metadata(decoder)) return "its metadata is damaged";
  if (state.range.first > 0 &&
      !FLAC__stream_decoder_seek_absolute(decoder, static_cast<FLAC__uint64>(state.range.first))) {
    return state.problem.empty() ? "frame " + std::to_string(state.range.first) + " cannot be reached" : state.problem;
  }
  while (state.problem.empty() && (state.range.count < 0 || state.done < state.range.count)) {
    if (FLAC__stream_decoder_get_state(decoder) == FLAC__STREAM_DECODER_END_OF_STREAM) break;
    if (!FLAC__stream_decoder_process_single(decoder) && state.problem.empty()) return "it cannot be decoded";
  }
  return state.problem;
}

Refusal truncated(const FlacState& state) {
  return {"it is truncated: " + std::to_string(state.range.first + state.done) + " of " +
          std::to_string(state.stream.info.frames) + " frames are there"};
}

}  // namespace

bool looks_like_flac(std::span<const std::byte> bytes) {
  const size_t start = skip_id3(bytes);
  return bytes.size() >= start + 4 && std::memcmp(bytes.data() + start, "fLaC", 4) == 0;
}

std::variant<AudioInfo, Refusal> probe_flac(std::span<const std::byte> head, uint64_t) {
  auto parsed = parse_stream_info(head);
  if (auto* refusal = std::get_if<Refusal>(&parsed)) return std::move(*refusal);
  return std::get<StreamInfo>(parsed).info;
}

std::variant<DecodedAudio, Refusal> decode_flac(std::span<const std::byte> bytes, const AudioRequest& request,
                                                const AllocatePlanes& allocate) {
  auto parsed = parse_stream_info(bytes);
  if (auto* refusal = std::get_if<Refusal>(&parsed)) return std::move(*refusal);
  thread_local ThreadDecoder thread;
  FlacState& state = thread.state;
  state = FlacState{};
  state.bytes = bytes;
  state.stream = std::get<StreamInfo>(parsed);
  state.request = &request;
  const AudioInfo& info = state.stream.info;
  // A frame holds at most max_block frames and is at least 8 bytes: what the header promises must be possible.
  const int64_t possible = static_cast<int64_t>(bytes.size() / 8 + 1) * state.stream.max_block;
  if (info.frames > possible) {
    return Refusal{"it is truncated: the header promises " + std::to_string(info.frames) + " frames, " +
                   std::to_string(bytes.size()) + " bytes cannot hold them"};
  }
  auto chosen = choose_frames(info, request);
  if (auto* refusal = std::get_if<Refusal>(&chosen)) return std::move(*refusal);
  state.range = std::get<FrameRange>(chosen);

  const int32_t planes = request.mono ? 1 : info.channels;
  if (info.frames >= 0) {
    state.planes = allocate(info, planes, state.range.count);
    state.plane_frames = state.range.count;
  } else {
    state.grown.resize(static_cast<size_t>(planes));
  }
  const std::string problem = run_decoder(thread);
  if (!problem.empty()) {
    // libFLAC calls a frame that the end of the file cuts a damaged one.
    const bool at_end =
        thread.decoder && FLAC__stream_decoder_get_state(thread.decoder.get()) == FLAC__STREAM_DECODER_END_OF_STREAM;
    thread.decoder.reset();
    if (at_end && info.frames >= 0) return truncated(state);
    return Refusal{"its FLAC stream is damaged: " + problem};
  }
  if (info.frames >= 0 && state.done < state.range.count) return truncated(state);
  if (info.frames < 0) {
    if (state.done == 0) return Refusal{"it holds no audio"};
    float* out = allocate(info, planes, state.done);
    for (const auto& plane : state.grown) out = std::copy(plane.begin(), plane.end(), out);
  }
  return DecodedAudio{info, state.done};
}

}  // namespace redline::data::codecs
