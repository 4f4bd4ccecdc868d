// One utterance of an invented language, and noises to mix with it: source and filter (Klatt, JASA 67, 1980) with words
// from a small lexicon, so that masked prediction has something to learn: what follows depends on the sound, the word
// and the speaker.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "data/synth/synth_parts.h"

namespace redline::data::synth {

// The words of a seed's language: phone letters. Shared by all items.
class Lexicon {
 public:
  explicit Lexicon(int64_t seed);
  // The word after `previous` (-1 at the start): a few likely successors each, and Zipf's law for the rest.
  int next_word(int previous, KeyedStream& draw) const;
  const std::string& word(int number) const { return words_[static_cast<size_t>(number)]; }

 private:
  std::vector<std::string> words_;
  std::vector<std::vector<int>> successors_;
};

struct Utterance {
  std::vector<float> samples;
  std::string text;
  int speaker = 0;
};
Utterance speak(const Lexicon& lexicon, int64_t seed, Part part, uint64_t item, int rate, int64_t frames);

// White, pink, brown, hum or a crowd, with a slow swell.
std::vector<float> make_noise(const Lexicon& lexicon, int64_t seed, uint64_t item, int rate, int64_t frames);

}  // namespace redline::data::synth
