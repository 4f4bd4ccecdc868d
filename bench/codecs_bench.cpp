// Micro-benchmarks of the codecs, one thread, inputs in memory: what one core can do, beside what the library
// underneath needs alone. Times are figures for bench/results, never a test.
#include <FLAC/stream_decoder.h>
#include <benchmark/benchmark.h>
#include <turbojpeg.h>
#include <unistd.h>

#include <cmath>
#include <cstring>
#include <filesystem>
#include <memory>
#include <numeric>

#include "core/philox.h"
#include "data/audio/resample.h"
#include "data/codecs/audio.h"
#include "data/codecs/audio_writer.h"
#include "data/codecs/image.h"
#include "data/codecs/image_writer.h"
#include "data/parquet/parquet_source.h"
#include "data/synth.h"
#include "data/synth/synth_voice.h"

namespace {

using namespace redline;
using namespace redline::data;

constexpr int kRate = 16000;
constexpr int64_t kClipFrames = 6 * kRate;

const std::vector<float>& clip() {
  static const std::vector<float> samples =
      synth::speak(synth::Lexicon(1), 1, synth::Part::Train, 0, kRate, kClipFrames).samples;
  return samples;
}

std::span<const std::byte> bytes_of(const std::string& text) { return std::as_bytes(std::span(text)); }

void set_audio_rate(benchmark::State& state) {
  state.counters["clips/s"] = benchmark::Counter(static_cast<double>(state.iterations()), benchmark::Counter::kIsRate);
  state.counters["audio s/s"] =
      benchmark::Counter(static_cast<double>(state.iterations()) * 6.0, benchmark::Counter::kIsRate);
}

void decode_file(benchmark::State& state, const std::string& file, const AudioRequest& request) {
  for (auto _ : state) {
    auto result = decode_audio(bytes_of(file), "clip", request);
    benchmark::DoNotOptimize(result);
  }
  set_audio_rate(state);
}

void bm_wav16(benchmark::State& state) { decode_file(state, encode_wav(clip(), kRate), {}); }
BENCHMARK(bm_wav16);

void bm_flac(benchmark::State& state) { decode_file(state, encode_flac(clip(), kRate), {}); }
BENCHMARK(bm_flac);

void bm_flac_one_second_of_it(benchmark::State& state) {
  AudioRequest request;
  request.offset_seconds = 3.0;
  request.duration_seconds = 1.0;
  decode_file(state, encode_flac(clip(), kRate), request);
}
BENCHMARK(bm_flac_one_second_of_it);

// libFLAC alone, output thrown away: the floor.
void bm_flac_library_alone(benchmark::State& state) {
  struct Memory {
    std::string file;
    size_t position = 0;
  } memory{encode_flac(clip(), kRate), 0};
  const auto read = [](const FLAC__StreamDecoder*, FLAC__byte* out, size_t* count, void* client) {
    auto& m = *static_cast<Memory*>(client);
    *count = std::min(*count, m.file.size() - m.position);
    std::memcpy(out, m.file.data() + m.position, *count);
    m.position += *count;
    return *count == 0 ? FLAC__STREAM_DECODER_READ_STATUS_END_OF_STREAM : FLAC__STREAM_DECODER_READ_STATUS_CONTINUE;
  };
  const auto write = [](const FLAC__StreamDecoder*, const FLAC__Frame*, const FLAC__int32* const*, void*) {
    return FLAC__STREAM_DECODER_WRITE_STATUS_CONTINUE;
  };
  const auto error = [](const FLAC__StreamDecoder*, FLAC__StreamDecoderErrorStatus, void*) {};
  for (auto _ : state) {
    memory.position = 0;
    FLAC__StreamDecoder* decoder = FLAC__stream_decoder_new();
    FLAC__stream_decoder_init_stream(decoder, read, nullptr, nullptr, nullptr, nullptr, write, nullptr, error, &memory);
    FLAC__stream_decoder_process_until_end_of_stream(decoder);
    FLAC__stream_decoder_delete(decoder);
  }
  set_audio_rate(state);
}
BENCHMARK(bm_flac_library_alone);

void bm_resample_44100_to_16000(benchmark::State& state) {
  const std::vector<float> in(6 * 44100, 0.25f);
  const auto resampler = Resampler::get(44100, kRate);
  std::vector<float> out(static_cast<size_t>(resampler->output_length(static_cast<int64_t>(in.size()))));
  for (auto _ : state) {
    resampler->run(in, out);
    benchmark::DoNotOptimize(out.data());
  }
  set_audio_rate(state);
}
BENCHMARK(bm_resample_44100_to_16000);

// Detail at every scale, about as hard to compress as a photograph.
Array picture(int32_t side) {
  Array image = Array::empty(Dtype::U8, {side, side, 3});
  KeyedStream draw(5, 0, 0, 0);
  std::vector<double> waves;
  for (int i = 0; i < 60; ++i) waves.push_back(draw.uniform(-1, 1));
  size_t at = 0;
  for (int32_t y = 0; y < side; ++y)
    for (int32_t x = 0; x < side; ++x)
      for (size_t c = 0; c < 3; ++c) {
        double value = 128;
        for (size_t w = 0; w < 10; ++w)
          value += 30.0 / (1.0 + static_cast<double>(w)) *
                   std::sin(waves[w] * x * static_cast<double>(1 + w) * 0.2 + waves[w + 10] * y +
                            waves[w + 20] * static_cast<double>(c));
        image.as<uint8_t>()[at++] = static_cast<uint8_t>(std::clamp(value + draw.uniform(-12, 12), 0.0, 255.0));
      }
  return image;
}

const std::string& jpeg384() {
  static const std::string file = encode_jpeg(rgb_view(picture(384)), 90);
  return file;
}

void set_image_rate(benchmark::State& state) {
  state.counters["images/s"] = benchmark::Counter(static_cast<double>(state.iterations()), benchmark::Counter::kIsRate);
}

void decode_to_row(benchmark::State& state, const std::string& file, ImageDecode decode, ResizeFilter filter) {
  std::vector<float> row(3 * 224 * 224);
  const ImageRequest request{.decode = decode,
                             .resize = ResizeRequest{.width = 224, .height = 224, .box = {}, .filter = filter}};
  for (auto _ : state) {
    const auto bad = decode_image_normalized(bytes_of(file), "picture", request, {}, row);
    if (bad) state.SkipWithError("the picture did not decode");
    benchmark::DoNotOptimize(row.data());
  }
  set_image_rate(state);
}

void bm_jpeg_exact_bicubic(benchmark::State& state) {
  decode_to_row(state, jpeg384(), ImageDecode::Exact, ResizeFilter::Bicubic);
}
BENCHMARK(bm_jpeg_exact_bicubic);
void bm_jpeg_exact_bilinear(benchmark::State& state) {
  decode_to_row(state, jpeg384(), ImageDecode::Exact, ResizeFilter::Bilinear);
}
BENCHMARK(bm_jpeg_exact_bilinear);
void bm_jpeg_fast_bilinear(benchmark::State& state) {
  decode_to_row(state, jpeg384(), ImageDecode::Fast, ResizeFilter::Bilinear);
}
BENCHMARK(bm_jpeg_fast_bilinear);
void bm_png(benchmark::State& state) {
  decode_to_row(state, encode_png(rgb_view(picture(384))), ImageDecode::Exact, ResizeFilter::Bicubic);
}
BENCHMARK(bm_png);

// TurboJPEG alone at each scale, in eighths; which factors have vector code shows here.
void bm_jpeg_library_alone(benchmark::State& state) {
  const tjhandle handle = tjInitDecompress();
  const tjscalingfactor scale{static_cast<int>(state.range(0)), 8};
  const int side = TJSCALED(384, scale);
  std::vector<uint8_t> pixels(static_cast<size_t>(side) * static_cast<size_t>(side) * 3);
  const int flags = state.range(1) != 0 ? TJFLAG_FASTDCT | TJFLAG_FASTUPSAMPLE : TJFLAG_ACCURATEDCT;
  for (auto _ : state) {
    tjDecompress2(handle, reinterpret_cast<const unsigned char*>(jpeg384().data()), jpeg384().size(), pixels.data(),
                  side, 0, side, TJPF_RGB, flags);
    benchmark::DoNotOptimize(pixels.data());
  }
  tjDestroy(handle);
  set_image_rate(state);
}
BENCHMARK(bm_jpeg_library_alone)->ArgNames({"eighths", "fast"})->ArgsProduct({{8, 7, 6, 5, 4, 2}, {0, 1}});

void bm_resize_384_to_224(benchmark::State& state) {
  const Array image = picture(384);
  const ResizeRequest request{.width = 224,
                              .height = 224,
                              .box = {},
                              .filter = state.range(0) != 0 ? ResizeFilter::Bicubic : ResizeFilter::Bilinear};
  std::vector<float> row(3 * 224 * 224);
  for (auto _ : state) {
    if (state.range(1) != 0) {
      resize_normalize_rgb(rgb_view(image), request, {}, row);
    } else {
      reference::normalize(rgb_view(reference::resize(rgb_view(image), request)), false, {}, row);
    }
    benchmark::DoNotOptimize(row.data());
  }
  set_image_rate(state);
}
BENCHMARK(bm_resize_384_to_224)->ArgNames({"bicubic", "fast"})->ArgsProduct({{0, 1}, {0, 1}});

// 200,000 generated sequences of median length 90, batches of 16 in random order, padded: everything resident, or a few
// groups at a time.
struct Sequences {
  std::filesystem::path folder =
      std::filesystem::temp_directory_path() / ("codecs_bench_" + std::to_string(::getpid()));
  Sequences() {
    SynthConfig config;
    config.kind = "sequences";
    config.num = 200'000;
    config.num_validation = 0;
    synthesize(config, folder);
  }
  ~Sequences() { std::filesystem::remove_all(folder); }
};

ParquetOptions sequence_options() {
  static const Sequences data;
  ParquetOptions options;
  options.path = (data.folder / "train").string();
  options.columns = {"tokens"};
  options.cache_lengths = false;
  return options;
}

void bm_parquet_batches(benchmark::State& state) {
  const ParquetSource source(sequence_options());
  BatchPlan plan;
  plan.collate.fields = {{"tokens", 0.0, 1, "length", false}};
  plan.collate.counted_field = "tokens";
  measure::StageClock clock(1);
  std::vector<int64_t> order(static_cast<size_t>(source.size()));
  std::iota(order.begin(), order.end(), 0);
  KeyedStream draw(1, 0, 0, 0);
  for (size_t i = order.size() - 1; i > 0; --i)
    std::swap(order[i], order[static_cast<size_t>(draw.uniform_int(0, static_cast<int64_t>(i)))]);
  source.prefetch(order);
  size_t at = 0;
  for (auto _ : state) {
    Batch batch;
    source.read_batch(std::span(order).subspan(at, 16), plan, batch, clock.slot(0));
    benchmark::DoNotOptimize(batch);
    at = at + 32 <= order.size() ? at + 16 : 0;
  }
  state.counters["rows/s"] =
      benchmark::Counter(static_cast<double>(state.iterations()) * 16, benchmark::Counter::kIsRate);
}
BENCHMARK(bm_parquet_batches);

void bm_parquet_decode(benchmark::State& state) {
  int64_t rows = 0;
  for (auto _ : state) {
    const ParquetSource source(sequence_options());
    std::vector<int64_t> order(static_cast<size_t>(source.size()));
    std::iota(order.begin(), order.end(), 0);
    source.prefetch(order);
    rows += source.size();
  }
  state.counters["rows/s"] = benchmark::Counter(static_cast<double>(rows), benchmark::Counter::kIsRate);
}
BENCHMARK(bm_parquet_decode)->Unit(benchmark::kMillisecond);

void bm_parquet_lengths(benchmark::State& state) {
  int64_t rows = 0;
  for (auto _ : state) {
    const ParquetSource source(sequence_options());
    benchmark::DoNotOptimize(source.length(0));
    rows += source.size();
  }
  state.counters["rows/s"] = benchmark::Counter(static_cast<double>(rows), benchmark::Counter::kIsRate);
}
BENCHMARK(bm_parquet_lengths)->Unit(benchmark::kMillisecond);

}  // namespace

BENCHMARK_MAIN();
