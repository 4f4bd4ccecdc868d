#include "data/nuscenes/camera_transform.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numbers>
#include <numeric>

#include "core/error.h"
#include "core/strings.h"
#include "data/codecs/image_ops.h"

namespace redline::data::nuscenes {

namespace {

constexpr uint64_t kChoiceDraw = 0x6e75736301, kViewDraw = 0x6e75736302;

// The chosen rows of an array whose first dimension is cameras.
Array chosen(const Array& all, const std::vector<size_t>& which) {
  Shape shape = all.shape();
  const size_t row = all.num_bytes() / static_cast<size_t>(shape[0]);
  shape[0] = static_cast<int64_t>(which.size());
  Array out = Array::empty(all.dtype(), shape);
  for (size_t i = 0; i < which.size(); ++i)
    std::memcpy(static_cast<std::byte*>(out.data()) + i * row,
                static_cast<const std::byte*>(all.data()) + which[i] * row, row);
  return out;
}

const Array& field(const Sample& sample, const std::string& name) {
  const Array* array = sample.find(name);
  if (array == nullptr) throw DataError("The sample has no " + name + ".");
  return *array;
}

// out = a b, 2x2.
void times(const float a[4], const float b[4], float out[4]) {
  const float result[4] = {a[0] * b[0] + a[1] * b[2], a[0] * b[1] + a[1] * b[3], a[2] * b[0] + a[3] * b[2],
                           a[2] * b[1] + a[3] * b[3]};
  std::copy_n(result, 4, out);
}

}  // namespace

CameraMatrices camera_matrices(const CameraDraw& draw, int64_t height, int64_t width) {
  const auto scale = static_cast<float>(draw.resize);
  float turn[4] = {scale, 0.0f, 0.0f, scale};
  float move[2] = {-static_cast<float>(draw.left), -static_cast<float>(draw.top)};
  const auto w = static_cast<float>(width), h = static_cast<float>(height);
  const auto then = [&](const float a[4], const float b[2]) {
    times(a, turn, turn);
    const float x = a[0] * move[0] + a[1] * move[1] + b[0], y = a[2] * move[0] + a[3] * move[1] + b[1];
    move[0] = x, move[1] = y;
  };
  if (draw.flip) {
    const float mirror[4] = {-1.0f, 0.0f, 0.0f, 1.0f}, shift[2] = {w, 0.0f};
    then(mirror, shift);
  }
  const double angle = draw.degrees / 180.0 * std::numbers::pi;
  const auto cosine = static_cast<float>(std::cos(angle)), sine = static_cast<float>(std::sin(angle));
  const float rotation[4] = {cosine, sine, -sine, cosine}, middle[2] = {w / 2, h / 2};
  const float shift[2] = {rotation[0] * -middle[0] + rotation[1] * -middle[1] + middle[0],
                          rotation[2] * -middle[0] + rotation[3] * -middle[1] + middle[1]};
  then(rotation, shift);
  return {{turn[0], turn[1], 0.0f, turn[2], turn[3], 0.0f, 0.0f, 0.0f, 1.0f}, {move[0], move[1], 0.0f}};
}

CameraDraw CameraTransform::draw(int32_t stored_width, int32_t stored_height, KeyedStream* stream) const {
  const NuscenesOptions& o = settings_.options;
  const double stored_w = stored_width, stored_h = stored_height;
  CameraDraw out;
  out.resize = stream != nullptr ? stream->uniform(o.resize_lim[0], o.resize_lim[1])
                                 : std::max(static_cast<double>(settings_.height) / stored_h,
                                            static_cast<double>(settings_.width) / stored_w);
  out.width = std::max(1, static_cast<int32_t>(stored_w * out.resize));
  out.height = std::max(1, static_cast<int32_t>(stored_h * out.resize));
  const double cut = stream != nullptr ? stream->uniform(o.bot_pct_lim[0], o.bot_pct_lim[1])
                                       : (o.bot_pct_lim[0] + o.bot_pct_lim[1]) / 2;
  out.top = static_cast<int32_t>((1.0 - cut) * out.height) - static_cast<int32_t>(settings_.height);
  const int32_t room = std::max(0, out.width - static_cast<int32_t>(settings_.width));
  if (stream == nullptr) {
    out.left = room / 2;
    return out;
  }
  out.left = static_cast<int32_t>(stream->uniform(0.0, room));
  const double coin = stream->uniform();
  out.flip = o.rand_flip && coin < 0.5;
  out.degrees = stream->uniform(o.rot_lim[0], o.rot_lim[1]);
  return out;
}

void CameraTransform::prepare(std::span<const std::byte> bytes, const CameraDraw& d, std::span<float> out) const {
  const auto width = static_cast<int32_t>(settings_.width), height = static_cast<int32_t>(settings_.height);
  // The part of the crop that lies on the picture, in pixels of the resized picture.
  const int32_t x0 = std::max(0, d.left), x1 = std::min(d.width, d.left + width), y0 = std::max(0, d.top),
                y1 = std::min(d.height, d.top + height);
  const auto info = probe_image(bytes, "");
  if (const auto* bad = std::get_if<BadSample>(&info)) throw DataError(bad->reason);
  const ImageInfo& stored = std::get<ImageInfo>(info);
  if (x1 <= x0 || y1 <= y0) throw DataError("The crop lies outside the picture: check bot_pct_lim and resize_lim.");
  const double scale_x = static_cast<double>(stored.width) / d.width,
               scale_y = static_cast<double>(stored.height) / d.height;
  ImageRequest request;
  request.decode = settings_.decode;
  const bool whole = x1 - x0 == width && y1 - y0 == height;
  request.resize =
      ResizeRequest{x1 - x0, y1 - y0,
                    CropBox{x0 * scale_x, y0 * scale_y, std::min(x1 * scale_x, static_cast<double>(stored.width)),
                            std::min(y1 * scale_y, static_cast<double>(stored.height))},
                    ResizeFilter::Bicubic, whole && d.flip};
  if (whole && d.degrees == 0.0) {
    if (const ImageStatus bad = decode_image_normalized(bytes, "", request, settings_.normalization, out))
      throw DataError(bad->reason);
    return;
  }
  ImageResult result = decode_image(bytes, "", request);
  if (const auto* bad = std::get_if<BadSample>(&result)) throw DataError(bad->reason);
  Array picture = std::move(std::get<Array>(result));
  if (!whole) {
    picture = crop_rgb(rgb_view(picture), d.left - x0, d.top - y0, width, height);
    if (d.flip) picture = flip_rgb(rgb_view(picture));
  }
  if (d.degrees != 0.0) picture = rotate_rgb(rgb_view(picture), d.degrees);
  normalize_rgb(rgb_view(picture), false, settings_.normalization, out);
}

void CameraTransform::apply(Sample& sample, const DrawKey& key) const {
  const size_t all = settings_.options.cams.size();
  std::vector<size_t> which(all);
  std::iota(which.begin(), which.end(), size_t{0});
  const auto id = static_cast<uint64_t>(sample.id);
  if (settings_.training && settings_.options.ncams < static_cast<int64_t>(all)) {
    // The first of a random order, in that order, as the reference draws them.
    KeyedStream stream(key.seed, key.epoch, id, kChoiceDraw);
    for (size_t i = 0; i + 1 < all; ++i)
      std::swap(which[i],
                which[static_cast<size_t>(stream.uniform_int(static_cast<int64_t>(i), static_cast<int64_t>(all) - 1))]);
    which.resize(static_cast<size_t>(settings_.options.ncams));
  }
  const auto count = static_cast<int64_t>(which.size());
  Array images = Array::empty(Dtype::F32, {count, 3, settings_.height, settings_.width});
  Array rotations = Array::empty(Dtype::F32, {count, 3, 3}), moves = Array::empty(Dtype::F32, {count, 3});
  const auto stored = field(sample, "view_sizes").as<int64_t>();
  const size_t pixels = static_cast<size_t>(3 * settings_.height * settings_.width);
  for (size_t i = 0; i < which.size(); ++i) {
    const size_t camera = which[i];
    KeyedStream stream(key.seed, key.epoch, id, mix_key(kViewDraw, camera));
    const auto width = static_cast<int32_t>(stored[2 * camera]), height = static_cast<int32_t>(stored[2 * camera + 1]);
    const CameraDraw drawn = draw(width, height, settings_.training ? &stream : nullptr);
    const std::string name = "view" + std::to_string(camera) + "_bytes";
    prepare(std::as_bytes(field(sample, name).as<uint8_t>()), drawn, images.as<float>().subspan(i * pixels, pixels));
    const CameraMatrices matrices = camera_matrices(drawn, settings_.height, settings_.width);
    std::copy_n(matrices.rotation, 9, rotations.as<float>().data() + 9 * i);
    std::copy_n(matrices.translation, 3, moves.as<float>().data() + 3 * i);
  }
  for (const char* name : {"rots", "trans", "intrins"}) sample.set(name, chosen(field(sample, name), which));
  for (size_t camera = 0; camera < all; ++camera)
    std::erase_if(sample.fields, [&](const auto& f) { return f.first == "view" + std::to_string(camera) + "_bytes"; });
  std::erase_if(sample.fields, [](const auto& f) { return f.first == "view_sizes"; });
  sample.set("imgs", std::move(images));
  sample.set("post_rots", std::move(rotations));
  sample.set("post_trans", std::move(moves));
}

std::string CameraTransform::fingerprint() const {
  const NuscenesOptions& o = settings_.options;
  std::string text = "cameras " + join(o.cams, ",") + " " + std::to_string(settings_.height) + "x" +
                     std::to_string(settings_.width) + " decode " + std::to_string(static_cast<int>(settings_.decode)) +
                     (settings_.training ? " training " + std::to_string(o.ncams) : " validation");
  for (const auto* list : {&o.resize_lim, &o.bot_pct_lim, &o.rot_lim})
    for (double value : *list) text += " " + format_double(value);
  for (float value : settings_.normalization.mean) text += " " + format_double(static_cast<double>(value));
  for (float value : settings_.normalization.stddev) text += " " + format_double(static_cast<double>(value));
  return text + (o.rand_flip ? " flip" : "");
}

}  // namespace redline::data::nuscenes
