#include "data/synth/synth_voice.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <numbers>

namespace redline::data::synth {

namespace {

constexpr double kPi = std::numbers::pi;
constexpr int kNumWords = 48, kNumSpeakers = 64, kSuccessors = 4;

// Target of a speech sound. Vowel formants: Peterson and Barney, JASA 24, 1952 (men, averages); the rest are rough.
struct Phone {
  char letter;
  double f1, f2, f3;   // Hz
  double voice, hiss;  // amplitudes
  double hiss_hertz;   // where the hiss is strongest
  double seconds;
  bool vowel;
};
constexpr std::array<Phone, 16> kPhones{{
    {'a', 730, 1090, 2440, 1.0, 0.00, 3000, 0.110, true},
    {'e', 530, 1840, 2480, 1.0, 0.00, 3000, 0.100, true},
    {'i', 270, 2290, 3010, 0.9, 0.00, 3000, 0.090, true},
    {'o', 570, 840, 2410, 1.0, 0.00, 3000, 0.110, true},
    {'u', 300, 870, 2240, 0.9, 0.00, 3000, 0.100, true},
    {'m', 250, 1100, 2200, 0.5, 0.00, 3000, 0.070, false},
    {'n', 250, 1500, 2500, 0.5, 0.00, 3000, 0.065, false},
    {'l', 360, 1300, 2700, 0.6, 0.00, 3000, 0.060, false},
    {'r', 420, 1300, 1600, 0.6, 0.00, 3000, 0.060, false},
    {'s', 320, 1700, 2600, 0.0, 0.35, 6000, 0.090, false},
    {'z', 280, 1700, 2600, 0.4, 0.20, 5500, 0.075, false},
    {'f', 340, 1100, 2100, 0.0, 0.12, 4000, 0.080, false},
    {'h', 500, 1500, 2500, 0.0, 0.15, 1800, 0.060, false},
    {'p', 350, 900, 2200, 0.0, 0.25, 900, 0.050, false},
    {'t', 350, 1800, 2700, 0.0, 0.30, 4500, 0.045, false},
    {'k', 350, 1900, 2400, 0.0, 0.30, 2200, 0.055, false},
}};
constexpr size_t kNumVowels = 5;

const Phone& phone_of(char letter) {
  return *std::find_if(kPhones.begin(), kPhones.end(), [&](const Phone& p) { return p.letter == letter; });
}

// Fast noise for the sample loop; its seed comes from a keyed stream.
class QuickNoise {
 public:
  explicit QuickNoise(uint64_t seed) : state_(seed | 1) {}
  float next() {  // [-1, 1)
    state_ ^= state_ << 13;
    state_ ^= state_ >> 7;
    state_ ^= state_ << 17;
    return static_cast<float>(static_cast<int32_t>(state_ >> 32)) * (1.0f / 2147483648.0f);
  }

 private:
  uint64_t state_;
};

// Klatt's digital resonator.
class Resonator {
 public:
  void tune(double hertz, double bandwidth, double rate) {
    hertz = std::min(hertz, 0.45 * rate);
    const double r = std::exp(-kPi * bandwidth / rate);
    c_ = static_cast<float>(-r * r);
    b_ = static_cast<float>(2.0 * r * std::cos(2.0 * kPi * hertz / rate));
    a_ = 1.0f - b_ - c_;
  }
  float run(float x) {
    const float y = a_ * x + b_ * y1_ + c_ * y2_;
    y2_ = y1_;
    y1_ = y;
    return y;
  }

 private:
  float a_ = 1, b_ = 0, c_ = 0, y1_ = 0, y2_ = 0;
};

struct Speaker {
  double pitch, tract, breath;  // Hz, scale of formants, share of hiss in the voice
};

Speaker speaker_of(int64_t seed, int number) {
  KeyedStream draw = stream(seed, 9, static_cast<uint64_t>(number), Draw::Voice);
  const bool high = draw.uniform() < 0.5;
  return {high ? draw.uniform(160, 250) : draw.uniform(85, 150),
          high ? draw.uniform(1.05, 1.2) : draw.uniform(0.9, 1.05), draw.uniform(0.01, 0.06)};
}

// The vocal tract: moves towards the current phone's targets, so that neighbours colour each other.
class Tract {
 public:
  Tract(const Speaker& speaker, int rate, KeyedStream& draw)
      : speaker_(speaker), rate_(rate), noise_(draw.next_u64()) {}

  // Speaks one phone (or a pause) into out; stops at `end`.
  void sound(const Phone* phone, int64_t frames, double pitch, std::vector<float>& out, int64_t end) {
    const int64_t step = std::max<int64_t>(rate_ / 200, 1);  // controls move every 5 ms
    for (int64_t done = 0; done < frames && static_cast<int64_t>(out.size()) < end; done += step) {
      steer(phone, static_cast<double>(done) / static_cast<double>(frames), pitch);
      const int64_t count = std::min({step, frames - done, end - static_cast<int64_t>(out.size())});
      for (int64_t i = 0; i < count; ++i) out.push_back(next());
    }
  }

 private:
  void steer(const Phone* phone, double progress, double pitch) {
    const double blend = 0.35;
    const auto toward = [&](double& value, double target) { value += blend * (target - value); };
    const bool stop = phone != nullptr && (phone->letter == 'p' || phone->letter == 't' || phone->letter == 'k');
    const bool silent = phone == nullptr || (stop && progress < 0.6);  // a plosive is a closure, then a burst
    if (phone != nullptr) {
      toward(f1_, phone->f1 * speaker_.tract);
      toward(f2_, phone->f2 * speaker_.tract);
      toward(f3_, phone->f3 * speaker_.tract);
      toward(hiss_hertz_, phone->hiss_hertz);
    }
    toward(voice_, silent ? 0.0 : phone->voice);
    toward(hiss_, silent ? 0.0 : phone->hiss);
    toward(pitch_, pitch);
    r1_.tune(f1_, 70, rate_);
    r2_.tune(f2_, 100, rate_);
    r3_.tune(f3_, 140, rate_);
    r4_.tune(3500 * speaker_.tract, 250, rate_);
    hiss_filter_.tune(hiss_hertz_, 1500, rate_);
  }

  float next() {
    phase_ += pitch_ / rate_;
    float pulse = 0.0f;
    if (phase_ >= 1.0) {
      phase_ -= 1.0;
      pulse = static_cast<float>(voice_ * std::sqrt(rate_ / pitch_));  // about the same power at every pitch
    }
    const float breath = noise_.next();
    tilt_ += 0.25f * (pulse + static_cast<float>(speaker_.breath * voice_) * breath -
                      tilt_);  // the glottis is softer than a click
    const float voiced = r4_.run(r3_.run(r2_.run(r1_.run(tilt_))));
    return voiced + hiss_filter_.run(static_cast<float>(hiss_) * breath) * 0.5f;
  }

  Speaker speaker_;
  double rate_;
  QuickNoise noise_;
  double f1_ = 500, f2_ = 1500, f3_ = 2500, hiss_hertz_ = 3000, voice_ = 0, hiss_ = 0, pitch_ = 120, phase_ = 0;
  float tilt_ = 0;
  Resonator r1_, r2_, r3_, r4_, hiss_filter_;
};

void scale_to_peak(std::vector<float>& samples, float peak) {
  float largest = 1e-6f;
  for (const float x : samples) largest = std::max(largest, std::abs(x));
  for (float& x : samples) x *= peak / largest;
}

}  // namespace

Lexicon::Lexicon(int64_t seed) {
  KeyedStream draw = stream(seed, 0, 0, Draw::Lexicon);
  for (int w = 0; w < kNumWords; ++w) {
    std::string word;
    const int64_t syllables = draw.uniform_int(1, 3);
    for (int64_t s = 0; s < syllables; ++s) {
      word += kPhones[static_cast<size_t>(draw.uniform_int(kNumVowels, kPhones.size() - 1))].letter;
      word += kPhones[static_cast<size_t>(draw.uniform_int(0, kNumVowels - 1))].letter;
      if (draw.uniform() < 0.3)
        word += kPhones[static_cast<size_t>(draw.uniform_int(kNumVowels, kPhones.size() - 1))].letter;
    }
    words_.push_back(word);
    std::vector<int> next;
    for (int i = 0; i < kSuccessors; ++i) next.push_back(static_cast<int>(draw.uniform_int(0, kNumWords - 1)));
    successors_.push_back(next);
  }
}

int Lexicon::next_word(int previous, KeyedStream& draw) const {
  if (previous >= 0 && draw.uniform() < 0.75) {
    const auto& next = successors_[static_cast<size_t>(previous)];
    return next[static_cast<size_t>(std::min<int64_t>(draw.uniform_int(0, kSuccessors), kSuccessors - 1))];
  }
  // Zipf: rank about exp(u ln n).
  return std::min(static_cast<int>(std::exp(draw.uniform() * std::log(static_cast<double>(kNumWords)))) - 1,
                  kNumWords - 1);
}

Utterance speak(const Lexicon& lexicon, int64_t seed, Part part, uint64_t item, int rate, int64_t frames) {
  KeyedStream draw = stream(seed, static_cast<uint64_t>(part), item, Draw::Voice);
  Utterance result;
  result.speaker = static_cast<int>(draw.uniform_int(0, kNumSpeakers - 1));
  const Speaker speaker = speaker_of(seed, result.speaker);
  result.samples.reserve(static_cast<size_t>(frames));
  Tract tract(speaker, rate, draw);
  const auto frames_of = [&](double seconds) { return static_cast<int64_t>(seconds * rate); };
  tract.sound(nullptr, frames_of(draw.uniform(0.02, 0.15)), speaker.pitch, result.samples, frames);
  const double speed = draw.uniform(0.8, 1.25);
  int word = -1;
  while (static_cast<int64_t>(result.samples.size()) < frames) {
    word = lexicon.next_word(word, draw);
    if (!result.text.empty()) result.text += ' ';
    result.text += lexicon.word(word);
    const double accent = draw.uniform(0.95, 1.2);
    for (const char letter : lexicon.word(word)) {
      const Phone& phone = phone_of(letter);
      const double position = static_cast<double>(result.samples.size()) / static_cast<double>(frames);
      const double pitch =
          speaker.pitch * (1.12 - 0.25 * position) * (phone.vowel ? accent : 1.0);  // falls towards the end
      tract.sound(&phone, frames_of(phone.seconds * speed * draw.uniform(0.8, 1.25)), pitch, result.samples, frames);
    }
    if (draw.uniform() < 0.25)
      tract.sound(nullptr, frames_of(draw.uniform(0.05, 0.3)), speaker.pitch, result.samples, frames);
  }
  scale_to_peak(result.samples, static_cast<float>(draw.uniform(0.25, 0.85)));
  QuickNoise room(draw.next_u64());
  for (float& x : result.samples) x += 0.001f * room.next();
  return result;
}

std::vector<float> make_noise(const Lexicon& lexicon, int64_t seed, uint64_t item, int rate, int64_t frames) {
  KeyedStream draw = stream(seed, static_cast<uint64_t>(Part::Noise), item, Draw::Noise);
  const int64_t kind = draw.uniform_int(0, 4);
  QuickNoise white(draw.next_u64());
  std::vector<float> out(static_cast<size_t>(frames), 0.0f);
  if (kind == 4) {  // a crowd
    for (uint64_t voice = 0; voice < 4; ++voice) {
      const auto one = speak(lexicon, seed, Part::Noise, item * 4 + voice + 1'000'000, rate, frames).samples;
      for (size_t i = 0; i < out.size(); ++i) out[i] += one[i];
    }
  } else {
    const double hum = draw.uniform(50, 400);
    float brown = 0, slow = 0, middle = 0;
    for (size_t i = 0; i < out.size(); ++i) {
      const float x = white.next();
      brown = 0.995f * brown + 0.1f * x;
      slow = 0.998f * slow + 0.02f * x;
      middle = 0.9f * middle + 0.1f * x;
      const double phase = 2 * kPi * hum * static_cast<double>(i) / rate;
      const auto tone = static_cast<float>(std::sin(phase) + 0.5 * std::sin(2 * phase) + 0.25 * std::sin(3 * phase));
      const float kinds[] = {x, slow * 4 + middle + 0.15f * x, brown,
                             0.6f * tone + 0.2f * x};  // white, about pink, brown, hum
      out[i] = kinds[kind];
    }
  }
  const double swell = draw.uniform(0.1, 1.5), depth = draw.uniform(0.0, 0.6);
  for (size_t i = 0; i < out.size(); ++i) {
    out[i] *= static_cast<float>(1.0 - depth * (0.5 + 0.5 * std::sin(2 * kPi * swell * static_cast<double>(i) / rate)));
  }
  scale_to_peak(out, static_cast<float>(draw.uniform(0.2, 0.8)));
  return out;
}

}  // namespace redline::data::synth
