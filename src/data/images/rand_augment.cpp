#include "data/images/rand_augment.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "core/check.h"
#include "core/error.h"
#include "core/hash.h"
#include "core/philox.h"
#include "core/strings.h"
#include "data/codecs/image_affine.h"
#include "data/codecs/image_colour.h"

namespace redline::data {

namespace {

constexpr uint64_t kRandAugmentDraw = 0x696d61676502, kColorJitterDraw = 0x696d61676503;
constexpr double kScale = 10.0;  // magnitudes are tenths of an operation's range

KeyedStream stream_of(const Sample& sample, const DrawKey& key, uint64_t purpose, const std::string& field) {
  if (field != "image") purpose = mix_key(purpose, hash64(field));
  return {key.seed, key.epoch, static_cast<uint64_t>(sample.id), purpose};
}

const Array& pixels_of(const Sample& sample, const std::string& field) {
  const Array* pixels = sample.find(field);
  if (pixels == nullptr || pixels->dtype() != Dtype::U8 || pixels->shape().size() != 3 || pixels->shape()[2] != 3)
    throw DataError("There are no pixels in the sample: augmentation works on 8-bit pictures.");
  return *pixels;
}

struct Operation {
  const char* name;
  Array (*apply)(const RgbView&, double level, bool negate, const RandAugmentSettings& settings);
};

double either_way(double value, bool negate) { return negate ? -value : value; }
double enhance_factor(double level, bool negate) { return std::max(0.1, 1.0 + either_way(level * 0.9, negate)); }
int kept_bits(double level) { return static_cast<int>(level * 4); }
int solarize_from(double level) { return std::min(256, static_cast<int>(level * 256)); }

template <Enhance what>
Array enhance_by(const RgbView& x, double level, bool, const RandAugmentSettings&) {
  return enhance_rgb(x, what, level * 1.8 + 0.1);
}
template <Enhance what>
Array enhance_more(const RgbView& x, double level, bool negate, const RandAugmentSettings&) {
  return enhance_rgb(x, what, enhance_factor(level, negate));
}

// Levels are from 0 to 1.
const std::vector<Operation>& operations(bool increasing) {
  using S = RandAugmentSettings;
  static const auto both = [](std::vector<Operation> list) {
    const std::vector<Operation> more = {
        {"AutoContrast", [](const RgbView& x, double, bool, const S&) { return autocontrast_rgb(x); }},
        {"Equalize", [](const RgbView& x, double, bool, const S&) { return equalize_rgb(x); }},
        {"Invert", [](const RgbView& x, double, bool, const S&) { return invert_rgb(x); }},
        {"Rotate", [](const RgbView& x, double level, bool negate,
                      const S& s) { return rotate_rgb(x, either_way(level * 30.0, negate), s.filter, s.fill); }},
        {"SolarizeAdd", [](const RgbView& x, double level, bool,
                           const S&) { return solarize_add_rgb(x, std::min(128, static_cast<int>(level * 110))); }},
        {"ShearX",
         [](const RgbView& x, double level, bool negate, const S& s) {
           return affine_rgb(x, {1, either_way(level * 0.3, negate), 0, 0, 1, 0}, s.filter, s.fill);
         }},
        {"ShearY",
         [](const RgbView& x, double level, bool negate, const S& s) {
           return affine_rgb(x, {1, 0, 0, either_way(level * 0.3, negate), 1, 0}, s.filter, s.fill);
         }},
        {"TranslateXRel",
         [](const RgbView& x, double level, bool negate, const S& s) {
           return affine_rgb(x, {1, 0, either_way(level * 0.45, negate) * x.width, 0, 1, 0}, s.filter, s.fill);
         }},
        {"TranslateYRel", [](const RgbView& x, double level, bool negate, const S& s) {
           return affine_rgb(x, {1, 0, 0, 0, 1, either_way(level * 0.45, negate) * x.height}, s.filter, s.fill);
         }}};
    list.insert(list.end(), more.begin(), more.end());
    return list;
  };
  static const std::vector<Operation> plain = both(
      {{"Posterize", [](const RgbView& x, double level, bool, const S&) { return posterize_rgb(x, kept_bits(level)); }},
       {"Solarize",
        [](const RgbView& x, double level, bool, const S&) { return solarize_rgb(x, solarize_from(level)); }},
       {"Color", enhance_by<Enhance::Color>},
       {"Contrast", enhance_by<Enhance::Contrast>},
       {"Brightness", enhance_by<Enhance::Brightness>},
       {"Sharpness", enhance_by<Enhance::Sharpness>}});
  static const std::vector<Operation> growing =
      both({{"PosterizeIncreasing",
             [](const RgbView& x, double level, bool, const S&) { return posterize_rgb(x, 4 - kept_bits(level)); }},
            {"SolarizeIncreasing", [](const RgbView& x, double level, bool,
                                      const S&) { return solarize_rgb(x, 256 - solarize_from(level)); }},
            {"ColorIncreasing", enhance_more<Enhance::Color>},
            {"ContrastIncreasing", enhance_more<Enhance::Contrast>},
            {"BrightnessIncreasing", enhance_more<Enhance::Brightness>},
            {"SharpnessIncreasing", enhance_more<Enhance::Sharpness>}});
  return increasing ? growing : plain;
}

}  // namespace

RandAugmentSettings parse_rand_augment(const std::string& words) {
  const std::vector<std::string> parts = split(words, '-');
  const auto fail = [&](const std::string& why) {
    throw ConfigError("auto_augment '" + printable(words) + "': " + why +
                      " Expected timm's form, e.g. rand-m9-mstd0.5-inc1: rand, then m (magnitude 0 to 10), mstd, mmax, "
                      "n (operations), p (chance), inc1.");
  };
  if (parts[0] != "rand") fail("'" + printable(parts[0]) + "' is not known here.");
  RandAugmentSettings settings;
  for (size_t i = 1; i < parts.size(); ++i) {
    const size_t digit = parts[i].find_first_of("0123456789");
    const std::string key = parts[i].substr(0, digit);
    const std::optional<double> value =
        digit == std::string::npos ? std::nullopt : parse_double(parts[i].substr(digit));
    if (!value || !std::isfinite(*value)) {
      fail("'" + printable(parts[i]) + "' is no word with a number.");
    } else if (key == "m") {
      settings.magnitude = *value;
    } else if (key == "mstd") {
      settings.magnitude_std = *value > 100 ? std::numeric_limits<double>::infinity() : *value;
    } else if (key == "mmax") {
      settings.most = *value;
    } else if (key == "n") {
      settings.layers = static_cast<int>(std::clamp(*value, 0.0, 100.0));
    } else if (key == "p" && *value <= 1.0) {
      settings.chance = *value;
    } else if (key == "inc") {
      settings.increasing = *value != 0.0;
    } else {
      fail("'" + printable(parts[i]) + "' is not understood.");
    }
  }
  if (settings.layers < 1) fail("n must be at least 1.");
  if (settings.most > kScale) fail("mmax must be at most 10: beyond it some operations have no meaning.");
  return settings;
}

const std::vector<std::string>& RandAugment::names(bool increasing) {
  static const auto of = [](bool which) {
    std::vector<std::string> list;
    for (const Operation& one : operations(which)) list.push_back(one.name);
    return list;
  };
  static const std::vector<std::string> plain = of(false), growing = of(true);
  return increasing ? growing : plain;
}

Array RandAugment::operation(const RgbView& source, const std::string& name, double magnitude, bool negate) const {
  for (const Operation& one : operations(settings_.increasing))
    if (name == one.name) return one.apply(source, magnitude / kScale, negate, settings_);
  REDLINE_CHECK(false, "operations are named by names()");
  return {};
}

void RandAugment::apply(Sample& sample, const DrawKey& key) const {
  KeyedStream stream = stream_of(sample, key, kRandAugmentDraw, field_);
  Array image = pixels_of(sample, field_);
  const std::vector<std::string>& known = names(settings_.increasing);
  for (int layer = 0; layer < settings_.layers; ++layer) {
    // Everything is drawn whether or not it is used, so that one layer's choice never shifts the next.
    const auto which = static_cast<size_t>(stream.uniform_int(0, static_cast<int64_t>(known.size()) - 1));
    const bool happens = stream.uniform() < settings_.chance, negate = stream.uniform() < 0.5;
    const double spread = stream.normal(), share = stream.uniform();
    double magnitude = std::isinf(settings_.magnitude_std) ? share * settings_.magnitude
                                                           : settings_.magnitude + settings_.magnitude_std * spread;
    magnitude = std::clamp(magnitude, 0.0, settings_.most);
    if (happens) image = operation(rgb_view(image), known[which], magnitude, negate);
  }
  sample.set(field_, std::move(image));
}

std::string RandAugment::fingerprint() const {
  std::string text = "rand augment " + field_ + " " + std::to_string(settings_.layers) +
                     (settings_.increasing ? " increasing" : "") + " filter " +
                     std::to_string(static_cast<int>(settings_.filter));
  for (const double value : {settings_.magnitude, settings_.magnitude_std, settings_.most, settings_.chance})
    text += " " + format_double(value);
  for (const uint8_t value : settings_.fill) text += " " + std::to_string(value);
  return text;
}

void ColorJitter::apply(Sample& sample, const DrawKey& key) const {
  KeyedStream stream = stream_of(sample, key, kColorJitterDraw, field_);
  Array image = pixels_of(sample, field_);
  std::array<std::pair<Enhance, double>, 3> steps{
      {{Enhance::Brightness, 0.0}, {Enhance::Contrast, 0.0}, {Enhance::Color, 0.0}}};
  for (size_t i = 0; i < 3; ++i)
    steps[i].second = stream.uniform(std::max(0.0, 1.0 - strengths_[i]), 1.0 + strengths_[i]);
  std::swap(steps[2], steps[static_cast<size_t>(stream.uniform_int(0, 2))]);
  std::swap(steps[1], steps[static_cast<size_t>(stream.uniform_int(0, 1))]);
  for (const auto& [what, factor] : steps) {
    if (factor != 1.0) image = enhance_rgb(rgb_view(image), what, factor);
  }
  sample.set(field_, std::move(image));
}

std::string ColorJitter::fingerprint() const {
  std::string text = "colour jitter " + field_;
  for (const double value : strengths_) text += " " + format_double(value);
  return text;
}

}  // namespace redline::data
