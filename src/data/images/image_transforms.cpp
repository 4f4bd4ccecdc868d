#include "data/images/image_transforms.h"

#include <algorithm>
#include <cmath>

#include "core/error.h"
#include "core/hash.h"
#include "core/philox.h"
#include "core/strings.h"
#include "data/codecs/image_ops.h"

namespace redline::data {

namespace {

constexpr uint64_t kImageDraw = 0x696d61676501;

std::span<const std::byte> encoded(const Sample& sample, const std::string& field) {
  const Array* bytes = sample.find(field + "_bytes");
  if (bytes == nullptr) throw DataError("There is no picture in the sample.");
  return std::as_bytes(bytes->as<uint8_t>());
}

template <class T>
T good(std::variant<T, BadSample> result) {
  if (auto* bad = std::get_if<BadSample>(&result)) throw DataError(bad->reason);
  return std::move(std::get<T>(result));
}

void forget(Sample& sample, std::string_view name) {
  std::erase_if(sample.fields, [name](const auto& field) { return field.first == name; });
}

}  // namespace

std::string ImageSettings::fingerprint() const {
  std::string text = "image " + std::to_string(width) + "x" + std::to_string(height) + " crop " +
                     std::to_string(static_cast<int>(crop)) + " filter " + std::to_string(static_cast<int>(filter)) +
                     " decode " + std::to_string(static_cast<int>(decode));
  for (double value : {min_scale, max_scale, min_ratio, max_ratio, center_fraction, flip_chance, max_degrees})
    text += " " + format_double(value);
  for (float value : normalization.mean) text += " " + format_double(static_cast<double>(value));
  for (float value : normalization.stddev) text += " " + format_double(static_cast<double>(value));
  return text;
}

CropBox draw_crop(const ImageSettings& s, int32_t width, int32_t height, KeyedStream& stream) {
  const double w = width, h = height;
  if (s.crop == ImageCrop::None) return {0, 0, w, h};
  if (s.crop == ImageCrop::Center) {
    // The largest box of the result's shape, times the fraction.
    const double shape = static_cast<double>(s.width) / s.height;
    const double box_h = s.center_fraction * std::min(h, w / shape), box_w = box_h * shape;
    return {(w - box_w) / 2, (h - box_h) / 2, (w + box_w) / 2, (h + box_h) / 2};
  }
  for (int attempt = 0; attempt < 10; ++attempt) {
    const double area = w * h * stream.uniform(s.min_scale, s.max_scale);
    const double ratio = std::exp(stream.uniform(std::log(s.min_ratio), std::log(s.max_ratio)));
    const double box_w = std::round(std::sqrt(area * ratio)), box_h = std::round(std::sqrt(area / ratio));
    if (box_w < 1 || box_h < 1 || box_w > w || box_h > h) continue;
    const double x = static_cast<double>(stream.uniform_int(0, static_cast<int64_t>(w - box_w)));
    const double y = static_cast<double>(stream.uniform_int(0, static_cast<int64_t>(h - box_h)));
    return {x, y, x + box_w, y + box_h};
  }
  const double ratio = std::clamp(w / h, s.min_ratio, s.max_ratio);
  const double box_w = std::min(w, std::round(h * ratio)), box_h = std::min(h, std::round(w / ratio));
  const double x = std::floor((w - box_w) / 2), y = std::floor((h - box_h) / 2);
  return {x, y, x + box_w, y + box_h};
}

void DecodeImage::apply(Sample& sample, const DrawKey&) const {
  Array image = good(decode_image(encoded(sample, "image"), "", {}));
  forget(sample, "image_bytes");
  sample.set("image", std::move(image));
}

PrepareImage::Drawn PrepareImage::draw(const Sample& sample, const DrawKey& key) const {
  // One picture draws by the purpose's number alone; several draw apart, by their names too.
  const uint64_t purpose = field_ == "image" ? kImageDraw : mix_key(kImageDraw, hash64(field_));
  KeyedStream stream(key.seed, key.epoch, static_cast<uint64_t>(sample.id), purpose);
  ImageInfo info;
  if (const Array* decoded = sample.find(field_)) {
    info.height = static_cast<int32_t>(decoded->shape()[0]);
    info.width = static_cast<int32_t>(decoded->shape()[1]);
  } else {
    info = good(probe_image(encoded(sample, field_), ""));
  }
  Drawn drawn;
  drawn.request.decode = settings_.decode;
  drawn.request.resize =
      ResizeRequest{settings_.width, settings_.height, draw_crop(settings_, info.width, info.height, stream),
                    settings_.filter, settings_.flip_chance > 0.0 && stream.uniform() < settings_.flip_chance};
  if (settings_.max_degrees > 0.0) drawn.degrees = stream.uniform(-settings_.max_degrees, settings_.max_degrees);
  return drawn;
}

Array PrepareImage::pixels(const Sample& sample, const Drawn& drawn) const {
  const Array* decoded = sample.find(field_);
  const Array cut = decoded != nullptr ? resize_rgb(rgb_view(*decoded), *drawn.request.resize)
                                       : good(decode_image(encoded(sample, field_), "", drawn.request));
  return settings_.max_degrees > 0.0 ? rotate_rgb(rgb_view(cut), drawn.degrees) : cut;
}

void PrepareImage::replace(Sample& sample, Array image) const {
  forget(sample, field_ + "_bytes");
  sample.set(field_, std::move(image));
}

void PrepareImage::apply(Sample& sample, const DrawKey& key) const {
  const Drawn drawn = draw(sample, key);
  const Array* decoded = sample.find(field_);
  Array image = Array::empty(Dtype::F32, {3, settings_.height, settings_.width});
  if (settings_.max_degrees > 0.0) {
    normalize_rgb(rgb_view(pixels(sample, drawn)), false, settings_.normalization, image.as<float>());
  } else if (decoded != nullptr) {
    resize_normalize_rgb(rgb_view(*decoded), *drawn.request.resize, settings_.normalization, image.as<float>());
  } else if (const ImageStatus bad = decode_image_normalized(encoded(sample, field_), "", drawn.request,
                                                             settings_.normalization, image.as<float>())) {
    throw DataError(bad->reason);
  }
  replace(sample, std::move(image));
}

void CropImage::apply(Sample& sample, const DrawKey& key) const {
  const Drawn drawn = draw(sample, key);
  Array image = pixels(sample, drawn);
  // Crop and resize, then the flip, then the rotation about the centre.
  const CropBox box = *drawn.request.resize->box;
  const double w = settings_.width, h = settings_.height;
  double sx = w / (box.x1 - box.x0), tx = -box.x0 * sx;
  const double sy = h / (box.y1 - box.y0), ty = -box.y0 * sy;
  if (drawn.request.resize->flip_horizontal) sx = -sx, tx = w - tx;
  // Counter-clockwise on the screen, where y points down.
  const double angle = drawn.degrees * 3.14159265358979323846 / 180.0, c = std::cos(angle), s = std::sin(angle);
  const double from_x = tx - w / 2, from_y = ty - h / 2;
  const double rows[9] = {c * sx,  s * sy, c * from_x + s * from_y + w / 2,
                          -s * sx, c * sy, -s * from_x + c * from_y + h / 2,
                          0.0,     0.0,    1.0};
  Array matrix = Array::empty(Dtype::F32, {3, 3});
  std::transform(rows, rows + 9, matrix.as<float>().begin(), [](double x) { return static_cast<float>(x); });
  replace(sample, std::move(image));
  sample.set(field_ + "_matrix", std::move(matrix));
}

void NormalizeImage::apply(Sample& sample, const DrawKey&) const {
  const Array* pixels = sample.find(field_);
  if (pixels == nullptr || pixels->dtype() != Dtype::U8) throw DataError("There are no pixels in the sample.");
  Array image = Array::empty(Dtype::F32, {3, pixels->shape()[0], pixels->shape()[1]});
  normalize_rgb(rgb_view(*pixels), false, normalization_, image.as<float>());
  sample.set(field_, std::move(image));
}

std::string NormalizeImage::fingerprint() const {
  std::string text = "normalize " + field_;
  for (float value : normalization_.mean) text += " " + format_double(static_cast<double>(value));
  for (float value : normalization_.stddev) text += " " + format_double(static_cast<double>(value));
  return text;
}

}  // namespace redline::data
