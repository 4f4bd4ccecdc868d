#include "data/images/mix_pictures.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

#include "core/error.h"
#include "core/strings.h"

namespace redline::data {

namespace {

constexpr uint64_t kMixDraw = 0x696d61676505;

// Marsaglia & Tsang (2000).
double draw_gamma(KeyedStream& stream, double shape) {
  if (shape < 1.0) {
    const double boost = std::pow(1.0 - stream.uniform(), 1.0 / shape);
    return draw_gamma(stream, shape + 1.0) * boost;
  }
  const double d = shape - 1.0 / 3.0, c = 1.0 / std::sqrt(9.0 * d);
  for (;;) {
    const double x = stream.normal(), root = 1.0 + c * x;
    if (root <= 0.0) continue;
    const double v = root * root * root, u = 1.0 - stream.uniform();
    if (std::log(u) < 0.5 * x * x + d - d * v + d * std::log(v)) return d * v;
  }
}

// What becomes of a picture: the share that stays its own, and with cutmix the box that does not.
struct Mix {
  double own = 1.0;
  int64_t top = 0, bottom = 0, left = 0, right = 0;
  bool cut = false;
};

Mix draw_mix(const MixSettings& s, int64_t height, int64_t width, KeyedStream& stream) {
  Mix mix;
  if (stream.uniform() >= s.chance) return mix;
  const bool switched = stream.uniform() < s.cutmix_chance;
  mix.cut = s.cutmix_alpha > 0.0 && (s.mixup_alpha <= 0.0 || switched);
  mix.own = draw_beta(stream, mix.cut ? s.cutmix_alpha : s.mixup_alpha);
  if (!mix.cut) return mix;
  const double ratio = std::sqrt(1.0 - mix.own);
  const auto cut_h = static_cast<int64_t>(static_cast<double>(height) * ratio),
             cut_w = static_cast<int64_t>(static_cast<double>(width) * ratio);
  const int64_t y = stream.uniform_int(0, height - 1), x = stream.uniform_int(0, width - 1);
  mix.top = std::clamp<int64_t>(y - cut_h / 2, 0, height), mix.bottom = std::clamp<int64_t>(y + cut_h / 2, 0, height);
  mix.left = std::clamp<int64_t>(x - cut_w / 2, 0, width), mix.right = std::clamp<int64_t>(x + cut_w / 2, 0, width);
  // The share that was really cut, the edges considered.
  const auto cut = static_cast<double>((mix.bottom - mix.top) * (mix.right - mix.left));
  mix.own = 1.0 - cut / static_cast<double>(height * width);
  return mix;
}

Array mixed(const Array& own, const Array& other, const Mix& mix) {
  Array out = Array::empty(Dtype::F32, own.shape());
  const float *a = own.as<float>().data(), *b = other.as<float>().data();
  float* to = out.as<float>().data();
  if (!mix.cut) {
    const auto share = static_cast<float>(mix.own), rest = static_cast<float>(1.0 - mix.own);
    for (int64_t i = 0; i < own.numel(); ++i) to[i] = a[i] * share + b[i] * rest;
    return out;
  }
  std::memcpy(to, a, own.num_bytes());
  const int64_t height = own.shape()[1], width = own.shape()[2];
  for (int64_t c = 0; c < own.shape()[0]; ++c)
    for (int64_t y = mix.top; y < mix.bottom; ++y)
      std::copy_n(b + (c * height + y) * width + mix.left, mix.right - mix.left,
                  to + (c * height + y) * width + mix.left);
  return out;
}

int64_t label_of(const Sample& sample) {
  const Array* label = sample.find("label");
  if (label == nullptr || label->dtype() != Dtype::I64 || label->numel() != 1)
    throw DataError("Sample " + std::to_string(sample.id) + " has no label: mixup and cutmix mix labels too.");
  return label->as<int64_t>()[0];
}

void tell(Sample& sample, int64_t other_label, double share) {
  Array label = Array::empty(Dtype::I64, {}), part = Array::empty(Dtype::F32, {});
  label.as<int64_t>()[0] = other_label;
  part.as<float>()[0] = static_cast<float>(share);
  sample.set(kMixedLabel, std::move(label));
  sample.set(kMixedShare, std::move(part));
}

}  // namespace

double draw_beta(KeyedStream& stream, double alpha) {
  const double a = draw_gamma(stream, alpha), b = draw_gamma(stream, alpha);
  return a + b > 0.0 ? a / (a + b) : (stream.uniform() < 0.5 ? 0.0 : 1.0);  // tiny alphas end at the ends
}

void MixPictures::apply(std::span<Sample> group, const DrawKey& key) const {
  if (group.empty()) return;
  std::vector<Array> pictures;
  std::vector<int64_t> labels;
  for (const Sample& sample : group) {
    const Array* picture = sample.find("image");
    if (picture == nullptr || picture->dtype() != Dtype::F32 || picture->shape().size() != 3 ||
        (!pictures.empty() && picture->shape() != pictures[0].shape()))
      throw DataError("Sample " + std::to_string(sample.id) +
                      " cannot be mixed with its group: mixup and cutmix need pictures of one size.");
    pictures.push_back(*picture);
    labels.push_back(label_of(sample));
  }
  const int64_t height = pictures[0].shape()[1], width = pictures[0].shape()[2];
  const auto stream_for = [&](const Sample& sample) {
    return KeyedStream(key.seed, key.epoch, static_cast<uint64_t>(sample.id), kMixDraw);
  };
  KeyedStream shared = stream_for(group[0]);
  const Mix whole = draw_mix(settings_, height, width, shared);
  for (size_t i = 0; i < group.size(); ++i) {
    const size_t other = group.size() - 1 - i;
    Mix mix = whole;
    if (settings_.each) {
      KeyedStream own = stream_for(group[i]);
      mix = draw_mix(settings_, height, width, own);
    }
    if (other == i || mix.own >= 1.0) {  // the one in the middle has no partner
      tell(group[i], labels[i], 0.0);
      continue;
    }
    group[i].set("image", mixed(pictures[i], pictures[other], mix));
    tell(group[i], labels[other], 1.0 - mix.own);
  }
}

std::string MixPictures::fingerprint() const {
  std::string text = settings_.each ? "mix each" : "mix";
  for (const double value : {settings_.mixup_alpha, settings_.cutmix_alpha, settings_.chance, settings_.cutmix_chance})
    text += " " + format_double(value);
  return text;
}

}  // namespace redline::data
