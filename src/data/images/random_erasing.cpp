#include "data/images/random_erasing.h"

#include <cmath>
#include <cstring>

#include "core/error.h"
#include "core/hash.h"
#include "core/philox.h"
#include "core/strings.h"

namespace redline::data {

namespace {

constexpr uint64_t kErasingDraw = 0x696d61676504;

struct ErasedBox {
  int64_t top = 0, left = 0, height = 0, width = 0;
};

// Ten tries; an empty box when none fits.
ErasedBox draw_box(const ErasingSettings& s, int64_t height, int64_t width, KeyedStream& stream) {
  const double area = static_cast<double>(height * width);
  for (int attempt = 0; attempt < 10; ++attempt) {
    const double target = stream.uniform(s.min_area, s.max_area) * area / s.boxes;
    const double aspect = std::exp(stream.uniform(std::log(s.min_aspect), std::log(1.0 / s.min_aspect)));
    const auto h = static_cast<int64_t>(std::nearbyint(std::sqrt(target * aspect)));
    const auto w = static_cast<int64_t>(std::nearbyint(std::sqrt(target / aspect)));
    if (h >= height || w >= width) continue;
    return {stream.uniform_int(0, height - h), stream.uniform_int(0, width - w), h, w};
  }
  return {};
}

}  // namespace

void RandomErasing::apply(Sample& sample, const DrawKey& key) const {
  const Array* found = sample.find(field_);
  if (found == nullptr || found->dtype() != Dtype::F32 || found->shape().size() != 3)
    throw DataError("There is no normalised picture in the sample to erase from.");
  const uint64_t purpose = field_ == "image" ? kErasingDraw : mix_key(kErasingDraw, hash64(field_));
  KeyedStream stream(key.seed, key.epoch, static_cast<uint64_t>(sample.id), purpose);
  if (stream.uniform() >= settings_.chance) return;
  const int64_t channels = found->shape()[0], height = found->shape()[1], width = found->shape()[2];
  Array image = Array::empty(Dtype::F32, found->shape());
  std::memcpy(image.data(), found->data(), image.num_bytes());
  for (int b = 0; b < settings_.boxes; ++b) {
    const ErasedBox box = draw_box(settings_, height, width, stream);
    for (int64_t c = 0; c < channels; ++c) {
      const auto whole = settings_.fill == EraseFill::Channel ? static_cast<float>(stream.normal()) : 0.0f;
      for (int64_t y = box.top; y < box.top + box.height; ++y) {
        float* row = image.as<float>().data() + (c * height + y) * width;
        for (int64_t x = box.left; x < box.left + box.width; ++x)
          row[x] = settings_.fill == EraseFill::Pixel ? static_cast<float>(stream.normal()) : whole;
      }
    }
  }
  sample.set(field_, std::move(image));
}

std::string RandomErasing::fingerprint() const {
  std::string text = "erase " + field_ + " " + std::to_string(static_cast<int>(settings_.fill)) + " " +
                     std::to_string(settings_.boxes);
  for (const double value : {settings_.chance, settings_.min_area, settings_.max_area, settings_.min_aspect})
    text += " " + format_double(value);
  return text;
}

}  // namespace redline::data
