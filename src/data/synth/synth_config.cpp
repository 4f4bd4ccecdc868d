#include <algorithm>

#include "core/error.h"
#include "core/strings.h"
#include "data/synth/synth_parts.h"

namespace redline::data {

const std::vector<synth::Maker>& synth::makers() {
  static const std::vector<Maker> all{{"speech", {"flac", "wav"}, make_speech},
                                      {"sequences", {}, make_sequences},
                                      {"images", {"jpeg", "png"}, make_images, /*version=*/4},
                                      {"nuscenes", {"jpeg"}, make_nuscenes}};
  return all;
}

const synth::Maker& synth::maker_of(const SynthConfig& config) {
  for (const Maker& maker : makers())
    if (config.kind == maker.kind) return maker;
  throw ConfigError("synth kind '" + printable(config.kind) +
                    "' is unknown; known are speech, sequences, images and nuscenes.");
}

config::Table<SynthConfig> SynthConfig::fields() {
  config::Table<SynthConfig> table;
  std::vector<std::string> kinds;
  for (const synth::Maker& maker : synth::makers()) kinds.push_back(maker.kind);
  table.add("kind", &SynthConfig::kind, "What to generate.").choices(std::move(kinds));
  table.add("num", &SynthConfig::num, "Number of training items.").range(1, 1e9);
  table.add("num_validation", &SynthConfig::num_validation, "Number of validation items; -1 for a tenth of num.")
      .range(-1, 1e9);
  table.add("seed", &SynthConfig::seed, "Seed of the generated world; the same options give the same bytes.")
      .at_least(0);
  table.add("num_threads", &SynthConfig::num_threads, "Threads that generate; 0 for all CPUs.").range(0, 1024);
  table
      .add("format", &SynthConfig::format,
           "File format: flac or wav (speech), jpeg or png (images); auto takes the first.")
      .choices({"auto", "flac", "wav", "jpeg", "png"});
  table.add("sample_rate", &SynthConfig::sample_rate, "Sample rate of generated speech.")
      .unit("Hz")
      .range(8000, 192000);
  table.add("median_seconds", &SynthConfig::median_seconds, "Median of the log-normal clip durations.")
      .unit("s")
      .above(0);
  table.add("sigma", &SynthConfig::sigma, "Spread (sigma of the logarithm) of clip durations.").range(0, 4);
  table.add("min_seconds", &SynthConfig::min_seconds, "Shortest clip.").unit("s").above(0);
  table.add("max_seconds", &SynthConfig::max_seconds, "Longest clip.").unit("s").above(0);
  table.add("num_noise", &SynthConfig::num_noise, "Number of noise clips; -1 for a tenth of num.").range(-1, 1e9);
  table.add("median_length", &SynthConfig::median_length, "Median of the log-normal sequence lengths.")
      .unit("tokens")
      .above(0);
  table.add("length_sigma", &SynthConfig::length_sigma, "Spread (sigma of the logarithm) of sequence lengths.")
      .range(0, 4);
  table.add("min_length", &SynthConfig::min_length, "Shortest sequence.").unit("tokens").range(1, 1e6);
  table.add("max_length", &SynthConfig::max_length, "Longest sequence.").unit("tokens").range(1, 1e6);
  table
      .add("vocab_size", &SynthConfig::vocab_size,
           "Number of token ids; the first three are left for padding, start and end.")
      .range(8, 1 << 20);
  table.add("rows_per_file", &SynthConfig::rows_per_file, "Sequences per Parquet file.").range(1, 1e9);
  table.add("rows_per_group", &SynthConfig::rows_per_group, "Sequences per row group.").range(1, 1e9);
  table.add("num_classes", &SynthConfig::num_classes, "Classes of sequences or images.").range(1, 1000);
  table.add("width", &SynthConfig::width, "Width of generated images.").unit("pixels").range(8, 16384);
  table.add("height", &SynthConfig::height, "Height of generated images.").unit("pixels").range(8, 16384);
  table.add("quality", &SynthConfig::quality, "JPEG quality of generated images.").range(1, 100);
  table.add("camera_width", &SynthConfig::camera_width, "nuscenes: width of camera pictures.")
      .unit("pixels")
      .range(32, 8192);
  table.add("camera_height", &SynthConfig::camera_height, "nuscenes: height of camera pictures.")
      .unit("pixels")
      .range(32, 8192);
  table.add("index", &SynthConfig::index, "Also write index.jsonl beside the class folders.");
  return table;
}

void SynthConfig::check() const {
  const std::vector<std::string>& formats = synth::maker_of(*this).formats;
  if (num < 1) throw ConfigError("synth num is " + std::to_string(num) + "; at least 1 item is needed.");
  if (format != "auto" && std::find(formats.begin(), formats.end(), format) == formats.end()) {
    throw ConfigError("synth format '" + format + "' does not fit kind '" + kind +
                      "'; leave it at auto, or use flac or wav for speech and jpeg or png for images.");
  }
  if (min_seconds > max_seconds) throw ConfigError("synth min_seconds is larger than max_seconds.");
  if (min_length > max_length) throw ConfigError("synth min_length is larger than max_length.");
}

}  // namespace redline::data
