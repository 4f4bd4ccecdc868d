// FLAC through libFLAC, from memory or from a file in pieces. One decoder object per thread is kept and reset between
// files, because opening one allocates; after any refusal it is thrown away. STREAMINFO is read here first, so that
// sizes are judged before libFLAC sees the file. The callbacks are called from C and let no exception through.
#include <FLAC/stream_decoder.h>

#include <algorithm>
#include <memory>
#include <new>
#include <vector>

#include "data/codecs/audio_parts.h"
#include "data/workers/item_memory.h"

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

constexpr size_t kWindowBytes = size_t{256} << 10;  // of a large file, read at once
constexpr size_t kGrownFloats = size_t{64} << 10;   // of one piece of a clip of unknown length

enum class FlacStop : uint8_t { None, TooLong, TooLarge, Busy, NoMemory, Unreadable };

// A clip of unknown length, in pieces: growing one block would need three times its memory for a moment.
using GrownPlane = std::vector<std::vector<float>>;

// What a decode in progress needs; the callbacks' client data.
struct FlacState {
  const AudioInput* input = nullptr;
  uint64_t position = 0;
  std::vector<std::byte> window;  // of the file, when the input is not in memory
  uint64_t window_begin = 0;
  StreamInfo stream;
  const AudioRequest* request = nullptr;
  FrameRange range;
  float* planes = nullptr;        // final memory when the number of frames is known
  int64_t plane_frames = 0;       // distance between planes
  std::vector<GrownPlane> grown;  // else
  int64_t most_frames = 0;
  int64_t done = 0;
  FlacStop stop = FlacStop::None;
  const char* problem = nullptr;
};

// Bytes at the position, at most `most`; empty at the end or when the file cannot be read.
std::span<const std::byte> next_bytes(FlacState& state, size_t most) {
  const AudioInput& input = *state.input;
  const uint64_t left = input.size - state.position;
  if (input.file == nullptr) {
    return input.bytes.subspan(static_cast<size_t>(state.position),
                               static_cast<size_t>(std::min<uint64_t>(most, left)));
  }
  if (left == 0) return {};
  if (state.position < state.window_begin || state.position >= state.window_begin + state.window.size()) {
    state.window.resize(static_cast<size_t>(std::min<uint64_t>(kWindowBytes, left)));
    state.window_begin = state.position;
    if (!input.file->read_at(input.offset + state.position, state.window)) {
      state.window.clear();
      state.stop = FlacStop::Unreadable;
      return {};
    }
  }
  const auto rest =
      std::span<const std::byte>(state.window).subspan(static_cast<size_t>(state.position - state.window_begin));
  return rest.first(std::min(most, rest.size()));
}

FLAC__StreamDecoderReadStatus on_read(const FLAC__StreamDecoder*, FLAC__byte* buffer, size_t* bytes, void* client) {
  auto& state = *static_cast<FlacState*>(client);
  std::span<const std::byte> piece;
  try {
    piece = next_bytes(state, *bytes);
  } catch (const std::bad_alloc&) {
    state.stop = FlacStop::NoMemory;
  }
  *bytes = piece.size();
  if (state.stop != FlacStop::None) return FLAC__STREAM_DECODER_READ_STATUS_ABORT;
  if (piece.empty()) return FLAC__STREAM_DECODER_READ_STATUS_END_OF_STREAM;
  std::memcpy(buffer, piece.data(), piece.size());
  state.position += piece.size();
  return FLAC__STREAM_DECODER_READ_STATUS_CONTINUE;
}

FLAC__StreamDecoderSeekStatus on_seek(const FLAC__StreamDecoder*, FLAC__uint64 offset, void* client) {
  auto& state = *static_cast<FlacState*>(client);
  if (offset > state.input->size) return FLAC__STREAM_DECODER_SEEK_STATUS_ERROR;
  state.position = offset;
  return FLAC__STREAM_DECODER_SEEK_STATUS_OK;
}

FLAC__StreamDecoderTellStatus on_tell(const FLAC__StreamDecoder*, FLAC__uint64* offset, void* client) {
  *offset = static_cast<FlacState*>(client)->position;
  return FLAC__STREAM_DECODER_TELL_STATUS_OK;
}

FLAC__StreamDecoderLengthStatus on_length(const FLAC__StreamDecoder*, FLAC__uint64* length, void* client) {
  *length = static_cast<FlacState*>(client)->input->size;
  return FLAC__STREAM_DECODER_LENGTH_STATUS_OK;
}

FLAC__bool on_eof(const FLAC__StreamDecoder*, void* client) {
  const auto& state = *static_cast<FlacState*>(client);
  return state.position >= state.input->size ? 1 : 0;
}

void on_error(const FLAC__StreamDecoder*, FLAC__StreamDecoderErrorStatus status, void* client) {
  auto& state = *static_cast<FlacState*>(client);
  if (state.problem != nullptr) return;
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
  GrownPlane& grown = state.grown[static_cast<size_t>(plane)];
  const auto wanted = static_cast<size_t>(count);
  if (grown.empty() || grown.back().capacity() - grown.back().size() < wanted) {
    grown.emplace_back();
    grown.back().reserve(std::max(wanted, kGrownFloats));
  }
  std::vector<float>& piece = grown.back();
  piece.resize(piece.size() + wanted);
  return piece.data() + piece.size() - wanted;
}

// May `count` more frames of a clip of unknown length be kept? What the finished clip will take is charged as well.
FlacStop may_grow(const FlacState& state, int64_t count) {
  if (state.done + count > state.most_frames) return FlacStop::TooLong;
  const AudioInfo& info = state.stream.info;
  const uint64_t piece = static_cast<uint64_t>(count) * sizeof(float) * state.grown.size();
  switch (try_charge_memory(piece + frames_bytes(info, *state.request, count))) {
    case Charge::TooLarge:
      return FlacStop::TooLarge;
    case Charge::Busy:
      return FlacStop::Busy;
    default:
      return FlacStop::None;
  }
}

void keep_block(FlacState& state, const FLAC__int32* const buffer[], int64_t count) {
  const int32_t channels = state.stream.info.channels;
  const float scale = 1.0f / static_cast<float>(int64_t{1} << (state.stream.bits - 1));
  if (!state.request->mono) {
    for (int32_t c = 0; c < channels; ++c) convert_plane_i32(buffer[c], count, scale, plane_at(state, c, count));
  } else if (channels > 1 && state.request->channel == kMixDown) {
    mix_planes_i32(buffer, channels, count, scale / static_cast<float>(channels), plane_at(state, 0, count));
  } else {
    convert_plane_i32(buffer[std::max(state.request->channel, 0)], count, scale, plane_at(state, 0, count));
  }
  state.done += count;
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
  if (count <= 0) return FLAC__STREAM_DECODER_WRITE_STATUS_CONTINUE;
  try {
    if (state.planes == nullptr) state.stop = may_grow(state, count);
    if (state.stop == FlacStop::None) keep_block(state, buffer, count);
  } catch (const std::bad_alloc&) {
    state.stop = FlacStop::NoMemory;
  }
  return state.stop == FlacStop::None ? FLAC__STREAM_DECODER_WRITE_STATUS_CONTINUE
                                      : FLAC__STREAM_DECODER_WRITE_STATUS_ABORT;
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
    return state.problem == nullptr ? "frame " + std::to_string(state.range.first) + " cannot be reached"
                                    : state.problem;
  }
  while (state.problem == nullptr && (state.range.count < 0 || state.done < state.range.count)) {
    if (FLAC__stream_decoder_get_state(decoder) == FLAC__STREAM_DECODER_END_OF_STREAM) break;
    if (!FLAC__stream_decoder_process_single(decoder) && state.problem == nullptr) return "it cannot be decoded";
  }
  return state.problem == nullptr ? std::string() : state.problem;
}

Refusal truncated(const FlacState& state) {
  return {"it is truncated: " + std::to_string(state.range.first + state.done) + " of " +
          std::to_string(state.stream.info.frames) + " frames are there"};
}

}  // namespace

namespace {

// Gives the memory of a clip back; after a refusal also the decoder, which may stand in the middle of a file.
class FlacCleanup {
 public:
  explicit FlacCleanup(ThreadDecoder& thread) : thread_(thread) {}
  FlacCleanup(const FlacCleanup&) = delete;
  FlacCleanup& operator=(const FlacCleanup&) = delete;
  ~FlacCleanup() {
    std::vector<GrownPlane>().swap(thread_.state.grown);
    if (!good) thread_.decoder.reset();
  }
  bool good = false;

 private:
  ThreadDecoder& thread_;
};

// Why a callback ended the decoding.
Refusal refuse_stopped(const FlacState& state) {
  switch (state.stop) {
    case FlacStop::TooLong:
      return refuse_longer(state.stream.info, *state.request);
    case FlacStop::TooLarge:
      return {too_large_text()};
    case FlacStop::Busy:
      throw_memory_busy(2);
    case FlacStop::NoMemory:
      throw std::bad_alloc();
    default:
      return {"the file could not be read to its end; it became shorter or the disk fails"};
  }
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

std::variant<DecodedAudio, Refusal> decode_flac(const AudioInput& input, std::span<const std::byte> head,
                                                const AudioRequest& request, const AllocatePlanes& allocate) {
  auto parsed = parse_stream_info(head);
  if (auto* refusal = std::get_if<Refusal>(&parsed)) return std::move(*refusal);
  thread_local ThreadDecoder thread;
  FlacState& state = thread.state;
  state = FlacState{};
  state.input = &input;
  state.stream = std::get<StreamInfo>(parsed);
  state.request = &request;
  const AudioInfo& info = state.stream.info;
  // A frame holds at most max_block frames and is at least 8 bytes: what the header promises must be possible.
  const int64_t possible = static_cast<int64_t>(input.size / 8 + 1) * state.stream.max_block;
  if (info.frames > possible) {
    return Refusal{"it is truncated: the header promises " + std::to_string(info.frames) + " frames, " +
                   std::to_string(input.size) + " bytes cannot hold them"};
  }
  auto chosen = choose_frames(info, request);
  if (auto* refusal = std::get_if<Refusal>(&chosen)) return std::move(*refusal);
  state.range = std::get<FrameRange>(chosen);

  FlacCleanup cleanup(thread);
  const int32_t planes = request.mono ? 1 : info.channels;
  if (info.frames >= 0) {
    if (!charge_memory(frames_bytes(info, request, state.range.count))) return Refusal{too_large_text()};
    state.planes = allocate(info, planes, state.range.count);
    state.plane_frames = state.range.count;
  } else {
    state.grown.resize(static_cast<size_t>(planes));
    state.most_frames = most_frames(info, request);
  }
  const std::string problem = run_decoder(thread);
  if (state.stop != FlacStop::None) return refuse_stopped(state);
  if (!problem.empty()) {
    // libFLAC calls a frame that the end of the file cuts a damaged one.
    const bool at_end =
        thread.decoder && FLAC__stream_decoder_get_state(thread.decoder.get()) == FLAC__STREAM_DECODER_END_OF_STREAM;
    if (at_end && info.frames >= 0) return truncated(state);
    return Refusal{"its FLAC stream is damaged: " + problem};
  }
  cleanup.good = true;
  if (info.frames >= 0 && state.done < state.range.count) return truncated(state);
  if (info.frames < 0) {
    if (state.done == 0) return Refusal{"it holds no audio"};
    float* out = allocate(info, planes, state.done);
    for (const GrownPlane& plane : state.grown)
      for (const auto& piece : plane) out = std::copy(piece.begin(), piece.end(), out);
  }
  return DecodedAudio{info, state.done};
}

}  // namespace redline::data::codecs
