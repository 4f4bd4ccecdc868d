// Speech-like clips with NeMo manifests: train, validation, noise.
#include <atomic>
#include <cmath>
#include <nlohmann/json.hpp>

#include "core/file_ops.h"
#include "core/strings.h"
#include "data/codecs/audio_writer.h"
#include "data/synth/synth_voice.h"

namespace redline::data::synth {

namespace {

struct ClipSet {
  Part part;
  const char* name;
  int64_t count;
};

std::string encode_clip(const std::vector<float>& samples, const SynthConfig& config) {
  if (config.format == "wav") return encode_wav(samples, config.sample_rate);
  return encode_flac(samples, config.sample_rate, 1, {.bits = 16, .compression_level = 5, .known_length = true});
}

// Writes the clips and the manifest beside their folder; adds to the result.
std::filesystem::path make_clips(const SynthConfig& config, const Lexicon& lexicon, const ClipSet& set,
                                 const std::filesystem::path& out, SynthResult& result) {
  const std::string extension = config.format == "wav" ? ".wav" : ".flac";
  make_item_folders(out / set.name, set.count);
  std::vector<std::string> lines(static_cast<size_t>(set.count));
  std::atomic<uint64_t> bytes = 0;
  for_each_item(set.count, config.num_threads, [&](int64_t item) {
    KeyedStream draw =
        stream(config.seed, static_cast<uint64_t>(set.part), static_cast<uint64_t>(item), Draw::Duration);
    const double seconds =
        log_normal(draw, config.median_seconds, config.sigma, config.min_seconds, config.max_seconds);
    const auto frames = std::max<int64_t>(1, std::llround(seconds * config.sample_rate));
    const std::string file = std::string(set.name) + "/" + item_name(item) + extension;
    nlohmann::ordered_json entry = {{"audio_filepath", file},
                                    {"duration", static_cast<double>(frames) / config.sample_rate}};
    Utterance clip;
    if (set.part == Part::Noise) {
      clip.samples = make_noise(lexicon, config.seed, static_cast<uint64_t>(item), config.sample_rate, frames);
    } else {
      clip = speak(lexicon, config.seed, set.part, static_cast<uint64_t>(item), config.sample_rate, frames);
      entry["text"] = clip.text;
      entry["speaker"] = "speaker-" + std::to_string(clip.speaker);
    }
    const std::string encoded = encode_clip(clip.samples, config);
    write_item(out / file, encoded);
    bytes += encoded.size();
    lines[static_cast<size_t>(item)] = entry.dump();
  });
  const std::filesystem::path manifest = out / (std::string(set.name) + "_manifest.json");
  write_file_atomic(manifest, join(lines, "\n") + "\n");
  result.num_items += set.count;
  result.num_bytes += bytes;
  return manifest;
}

}  // namespace

SynthResult make_speech(const SynthConfig& config, const std::filesystem::path& out) {
  const Lexicon lexicon(config.seed);
  SynthResult result;
  result.train = make_clips(config, lexicon, {Part::Train, "train", config.num}, out, result);
  if (config.num_validation > 0)
    result.validation =
        make_clips(config, lexicon, {Part::Validation, "validation", config.num_validation}, out, result);
  if (config.num_noise > 0)
    result.noise = make_clips(config, lexicon, {Part::Noise, "noise", config.num_noise}, out, result);
  return result;
}

}  // namespace redline::data::synth
