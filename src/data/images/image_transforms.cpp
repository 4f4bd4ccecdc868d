#include "data/images/image_transforms.h"

#include <algorithm>
#include <cmath>

#include "core/error.h"
#include "core/hash.h"
#include "core/philox.h"
#include "core/strings.h"
#include "data/codecs/image_colour.h"
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

// One plane of a picture whose channels are equal.
void normalize_grey(const Array& pixels, const Normalization& normalization, std::span<float> out) {
  const float scale = 1.0f / (255.0f * normalization.stddev[0]),
              shift = normalization.mean[0] / normalization.stddev[0];
  const uint8_t* from = pixels.as<uint8_t>().data();
  for (float& value : out) {
    value = static_cast<float>(*from) * scale - shift;
    from += 3;
  }
}

void forget(Sample& sample, std::string_view name) {
  std::erase_if(sample.fields, [name](const auto& field) { return field.first == name; });
}

}  // namespace

std::string ImageSettings::fingerprint() const {
  std::string text = "image " + std::to_string(width) + "x" + std::to_string(height) + " crop " +
                     std::to_string(static_cast<int>(crop)) + " filter " + std::to_string(static_cast<int>(filter)) +
                     " decode " + std::to_string(static_cast<int>(decode)) + " channels " + std::to_string(channels) +
                     (upright ? " upright" : "");
  for (double value : {min_scale, max_scale, min_ratio, max_ratio, center_fraction, flip_chance, max_degrees})
    text += " " + format_double(value);
  for (float value : normalization.mean) text += " " + format_double(static_cast<double>(value));
  for (float value : normalization.stddev) text += " " + format_double(static_cast<double>(value));
  return text;
}

// timm and torchvision resize the shorter side to floor(size / fraction), the other to a whole number too, and cut at
// whole pixels.
std::optional<ResizeWindow> center_window(const ImageSettings& s, int32_t width, int32_t height) {
  const double side = std::floor(std::min(s.width, s.height) / s.center_fraction),
               other = std::floor(side * std::max(width, height) / std::min(width, height));
  const double to_w = width <= height ? side : other, to_h = width <= height ? other : side;
  constexpr double kMost = 1 << 30;
  if (to_w < s.width || to_h < s.height || to_w > kMost || to_h > kMost) return std::nullopt;
  return ResizeWindow{static_cast<int32_t>(to_w), static_cast<int32_t>(to_h),
                      static_cast<int32_t>(std::nearbyint((to_w - s.width) / 2)),
                      static_cast<int32_t>(std::nearbyint((to_h - s.height) / 2))};
}

CropBox draw_crop(const ImageSettings& s, int32_t width, int32_t height, KeyedStream& stream) {
  const double w = width, h = height;
  if (s.crop == ImageCrop::None) return {0, 0, w, h};
  if (s.crop == ImageCrop::Center) {
    const auto window = center_window(s, width, height);
    if (!window) return {0, 0, w, h};  // sides too far apart to be cut out of each other
    const double scale_x = w / window->full_width, scale_y = h / window->full_height;
    return {window->x * scale_x, window->y * scale_y, std::min(w, (window->x + s.width) * scale_x),
            std::min(h, (window->y + s.height) * scale_y)};
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
  ImageRequest request;
  request.upright = upright_;
  Array image = good(decode_image(encoded(sample, "image"), "", request));
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
    info = good(probe_image(encoded(sample, field_), "", settings_.upright));
  }
  Drawn drawn;
  drawn.request.decode = settings_.decode;
  drawn.request.upright = settings_.upright;
  drawn.request.grey = settings_.channels == 1;
  drawn.request.resize =
      ResizeRequest{settings_.width, settings_.height, draw_crop(settings_, info.width, info.height, stream),
                    settings_.filter, settings_.flip_chance > 0.0 && stream.uniform() < settings_.flip_chance};
  if (settings_.crop == ImageCrop::Center)
    drawn.request.resize->window = center_window(settings_, info.width, info.height);
  if (settings_.max_degrees > 0.0) drawn.degrees = stream.uniform(-settings_.max_degrees, settings_.max_degrees);
  return drawn;
}

Array PrepareImage::pixels(const Sample& sample, const Drawn& drawn) const {
  const Array* decoded = sample.find(field_);
  Array grey;
  if (decoded != nullptr && settings_.channels == 1) {
    grey = crop_rgb(rgb_view(*decoded), 0, 0, static_cast<int32_t>(decoded->shape()[1]),
                    static_cast<int32_t>(decoded->shape()[0]));  // a copy
    make_grey(grey.as<uint8_t>().data(), grey.numel() / 3);
    decoded = &grey;
  }
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
  Array image = Array::empty(Dtype::F32, {settings_.channels, settings_.height, settings_.width});
  if (settings_.channels == 1) {
    normalize_grey(pixels(sample, drawn), settings_.normalization, image.as<float>());
  } else if (settings_.max_degrees > 0.0) {
    normalize_rgb(rgb_view(pixels(sample, drawn)), false, settings_.normalization, image.as<float>());
  } else if (decoded != nullptr) {
    resize_normalize_rgb(rgb_view(*decoded), *drawn.request.resize, settings_.normalization, image.as<float>());
  } else if (const ImageStatus bad = decode_image_normalized(encoded(sample, field_), "", drawn.request,
                                                             settings_.normalization, image.as<float>())) {
    throw DataError(bad->reason);
  }
  replace(sample, std::move(image));
}

void FloatImage::apply(Sample& sample, const DrawKey& key) const {
  const Array* found = sample.find("image");
  const Shape wanted{settings_.channels, settings_.height, settings_.width};
  if (found == nullptr || found->dtype() != Dtype::F32) throw DataError("There is no picture of floats in the sample.");
  if (found->shape() != wanted) {
    const auto text = [](const Shape& s) {
      return std::to_string(s[0]) + " x " + std::to_string(s[1]) + " x " + std::to_string(s[2]);
    };
    throw DataError("The picture is " + text(found->shape()) + "; expected " + text(wanted) +
                    " (image_channels, image_size): pictures of floats are not resized.");
  }
  if (settings_.flip_chance <= 0.0) return;
  KeyedStream stream(key.seed, key.epoch, static_cast<uint64_t>(sample.id), kImageDraw);
  if (stream.uniform() >= settings_.flip_chance) return;
  Array image = Array::empty(Dtype::F32, wanted);
  const float* from = found->as<float>().data();
  float* to = image.as<float>().data();
  for (const float* end = from + found->numel(); from != end; from += settings_.width, to += settings_.width)
    std::reverse_copy(from, from + settings_.width, to);
  sample.set("image", std::move(image));
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
  Array image = Array::empty(Dtype::F32, {channels_, pixels->shape()[0], pixels->shape()[1]});
  if (channels_ == 1)
    normalize_grey(*pixels, normalization_, image.as<float>());
  else
    normalize_rgb(rgb_view(*pixels), false, normalization_, image.as<float>());
  sample.set(field_, std::move(image));
}

std::string NormalizeImage::fingerprint() const {
  std::string text = "normalize " + field_ + " " + std::to_string(channels_);
  for (float value : normalization_.mean) text += " " + format_double(static_cast<double>(value));
  for (float value : normalization_.stddev) text += " " + format_double(static_cast<double>(value));
  return text;
}

}  // namespace redline::data
