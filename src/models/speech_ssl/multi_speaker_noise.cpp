#include "models/speech_ssl/multi_speaker_noise.h"

#include <algorithm>
#include <cmath>

#include "core/strings.h"
#include "models/speech_ssl/noise.h"

namespace redline::models::speech {

std::vector<int64_t> split_evenly_at_random(int64_t total, int parts, KeyedStream& stream) {
  constexpr int64_t kExact = 4096;
  std::vector<int64_t> counts(static_cast<size_t>(parts), 0);
  if (total <= kExact) {
    for (int64_t i = 0; i < total; ++i) ++counts[static_cast<size_t>(stream.uniform_int(0, parts - 1))];
    return counts;
  }
  // A multinomial as a chain of binomials: each cell takes its share of what is left.
  for (int p = 0; p + 1 < parts; ++p) {
    const double chance = 1.0 / (parts - p), mean = static_cast<double>(total) * chance;
    const double drawn = std::round(mean + std::sqrt(mean * (1.0 - chance)) * stream.normal());
    counts[static_cast<size_t>(p)] = std::clamp<int64_t>(static_cast<int64_t>(drawn), 0, total);
    total -= counts[static_cast<size_t>(p)];
  }
  counts.back() = total;
  return counts;
}

namespace {

using Samples = std::span<const float>;

// A piece of overlay: where it goes, and samples [begin, begin + length) of `from`, repeated from its start when it is
// too short.
struct Piece {
  int64_t at = 0, length = 0, begin = 0;
  Samples from;
};

double energy_of(Samples signal) {
  // Eight sums side by side: vectorised, and the same on every machine.
  float sums[8] = {};
  size_t i = 0;
  for (; i + 8 <= signal.size(); i += 8) {
    for (size_t k = 0; k < 8; ++k) sums[k] += signal[i + k] * signal[i + k];
  }
  double total = 0.0;
  for (float sum : sums) total += sum;
  for (; i < signal.size(); ++i) total += static_cast<double>(signal[i]) * signal[i];
  return total;
}

// Calls `use(at, run of samples)` for the straight runs a piece is made of.
template <class F>
void for_each_run(const Piece& piece, F use) {
  for (int64_t done = 0; done < piece.length;) {
    const int64_t size = static_cast<int64_t>(piece.from.size()), from = (piece.begin + done) % size;
    const int64_t run = std::min(piece.length - done, size - from);
    use(piece.at + done, piece.from.subspan(static_cast<size_t>(from), static_cast<size_t>(run)));
    done += run;
  }
}

// Left to right at random, without overlap; `free` samples of the clip stay uncovered.
void place(std::vector<Piece>& pieces, int64_t free, KeyedStream& stream) {
  int64_t first = 0, last = free;
  for (Piece& piece : pieces) {
    piece.at = first < last ? stream.uniform_int(first, last - 1) : first;
    first = piece.at + piece.length;
    last += piece.length;
  }
}

std::vector<Piece> noise_pieces(const std::vector<int64_t>& lengths, Samples noise) {
  std::vector<Piece> pieces;
  int64_t begin = 0;
  for (int64_t length : lengths) {
    pieces.push_back({0, length, begin, noise});
    begin += length;
  }
  return pieces;
}

std::vector<Piece> speech_pieces(const std::vector<int64_t>& lengths, int speakers, size_t self,
                                 std::span<const data::Array> clean, KeyedStream& stream) {
  std::vector<size_t> others;
  for (size_t i = 0; i < clean.size(); ++i) {
    if (i != self && clean[i].numel() > 0) others.push_back(i);
  }
  if (others.empty()) return {};
  const size_t wanted = std::min(static_cast<size_t>(speakers), others.size());
  for (size_t i = 0; i < wanted; ++i) {
    std::swap(others[i], others[static_cast<size_t>(
                             stream.uniform_int(static_cast<int64_t>(i), static_cast<int64_t>(others.size()) - 1))]);
  }
  std::vector<Piece> pieces;
  size_t speaker = 0;
  for (int64_t length : lengths) {
    const Samples from = clean[others[speaker]].as<float>();
    const int64_t room = static_cast<int64_t>(from.size()) - length;
    pieces.push_back({0, length, room > 0 ? stream.uniform_int(0, room - 1) : 0, from});
    if (++speaker >= wanted) speaker = static_cast<size_t>(stream.uniform_int(0, static_cast<int64_t>(wanted) - 1));
  }
  return pieces;
}

}  // namespace

MultiSpeakerNoise::MultiSpeakerNoise(const data::MultiSpeakerNoiseConfig& config, bool keep_noise)
    : config_(config), keep_noise_(keep_noise) {
  config_.check();
}

std::string MultiSpeakerNoise::fingerprint() const {
  std::string text = "multi speaker noise";
  for (double value : {config_.prob, config_.noise_ratio, config_.min_r_speech, config_.max_r_speech,
                       config_.min_r_noise, config_.max_r_noise, config_.min_mix_rate, config_.max_mix_rate}) {
    text += " " + format_double(value);
  }
  for (int value :
       {config_.min_num_segments, config_.max_num_segments, config_.min_num_speakers, config_.max_num_speakers}) {
    text += " " + std::to_string(value);
  }
  return text + (config_.reference_quirks ? " quirks" : "");
}

// What is laid over a clip.
struct MultiSpeakerNoise::Mixture {
  std::vector<Piece> pieces;
  float scale = 0.0f;
};

MultiSpeakerNoise::Mixture MultiSpeakerNoise::draw(std::span<const data::Array> clean, size_t self,
                                                   const data::Array& noise, KeyedStream& stream) const {
  const auto& c = config_;
  const int64_t length = clean[self].numel();
  const double rate = c.min_mix_rate < c.max_mix_rate ? stream.uniform(c.min_mix_rate, c.max_mix_rate) : c.min_mix_rate;
  const int64_t mixed = std::max<int64_t>(1, static_cast<int64_t>(static_cast<double>(length) * rate));
  const int segments = static_cast<int>(stream.uniform_int(c.min_num_segments, c.max_num_segments));
  const int speakers = static_cast<int>(stream.uniform_int(c.min_num_speakers, c.max_num_speakers));
  const std::vector<int64_t> lengths = split_evenly_at_random(mixed, segments, stream);
  const bool by_noise = stream.uniform() < c.noise_ratio || clean.size() == 1;
  const double ratio_db =
      by_noise ? stream.uniform(c.min_r_noise, c.max_r_noise) : stream.uniform(c.min_r_speech, c.max_r_speech);
  Mixture mixture;
  if (!by_noise)
    mixture.pieces = speech_pieces(lengths, speakers, self, clean, stream);
  else if (noise.numel() > 0)
    mixture.pieces = noise_pieces(lengths, noise.as<float>());
  place(mixture.pieces, length - mixed, stream);
  // Both energies are means over the clip's length (the reference counts the zeros around the overlay too), so the
  // length cancels.
  double energy = 0.0;
  for (const Piece& piece : mixture.pieces)
    for_each_run(piece, [&](int64_t, Samples run) { energy += energy_of(run); });
  if (energy > 0.0)
    mixture.scale =
        static_cast<float>(std::sqrt(energy_of(clean[self].as<float>()) / (std::pow(10.0, ratio_db / 10.0) * energy)));
  return mixture;
}

void MultiSpeakerNoise::leave(data::Sample& sample, const data::Array& clean, const data::DrawKey& key) const {
  if (!config_.reference_quirks) {
    sample.set("noisy_audio", clean);
    if (keep_noise_) sample.set("noise", data::Array::zeros(data::Dtype::F32, clean.shape()));
    return;
  }
  AddNoise().apply(sample, key);
  // The reference takes the noise clip's length for the mixture's.
  const int64_t length = std::min(sample.find("noise")->numel(), clean.numel());
  sample.set("noisy_audio", data::Array::wrap(data::Dtype::F32, {length}, sample.find("noisy_audio")->memory()));
}

void MultiSpeakerNoise::add(data::Sample& sample, const data::Array& clean, const Mixture& mixture) const {
  data::Array noisy = data::Array::empty(data::Dtype::F32, clean.shape());
  data::Array added = keep_noise_ ? data::Array::zeros(data::Dtype::F32, clean.shape()) : data::Array();
  std::copy(clean.as<float>().begin(), clean.as<float>().end(), noisy.as<float>().begin());
  const float scale = mixture.scale;
  for (const Piece& piece : mixture.pieces) {
    for_each_run(piece, [&](int64_t at, Samples run) {
      float* out = noisy.as<float>().data() + at;
      for (size_t k = 0; k < run.size(); ++k) out[k] += scale * run[k];
      if (!keep_noise_) return;
      float* alone = added.as<float>().data() + at;
      for (size_t k = 0; k < run.size(); ++k) alone[k] = scale * run[k];
    });
  }
  sample.set("noisy_audio", std::move(noisy));
  if (keep_noise_) sample.set("noise", std::move(added));
}

void MultiSpeakerNoise::apply(std::span<data::Sample> group, const data::DrawKey& key) const {
  std::vector<data::Array> clean;  // held here, whatever happens to the samples
  for (const data::Sample& sample : group) clean.push_back(*sample.find("audio"));
  for (size_t i = 0; i < group.size(); ++i) {
    data::Sample& sample = group[i];
    KeyedStream stream(key.seed, key.epoch, static_cast<uint64_t>(sample.id), static_cast<uint64_t>(NoiseDraw::Mix));
    const data::Array noise = *sample.find("noise");
    if (stream.uniform() > config_.prob || clean[i].numel() == 0)
      leave(sample, clean[i], key);
    else
      add(sample, clean[i], draw(clean, i, noise, stream));
  }
}

}  // namespace redline::models::speech
