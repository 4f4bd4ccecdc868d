// Pictures with classes that must be learned: a class is a shape and a texture; colour, light and dark, place, size,
// angle, background and grain vary and say nothing about it, so that neither a mean colour nor a pixel gives it away. A
// folder per class, and on request an index.
#include <algorithm>
#include <array>
#include <atomic>
#include <cmath>
#include <nlohmann/json.hpp>
#include <numbers>

#include "core/file_ops.h"
#include "core/strings.h"
#include "data/codecs/image_writer.h"
#include "data/synth/synth_parts.h"

namespace redline::data::synth {

namespace {

constexpr float kTau = 2.0f * std::numbers::pi_v<float>;
using Colour = std::array<float, 3>;

constexpr int kShapes = 8, kTextures = 3;

struct ClassLook {
  int shape = 0, texture = 0;
  float hue = 0, hue_width = 1;  // the part of the colour circle its pictures have
};

// 8 and 3 share no factor, so the first 24 classes are all pairs of shape and texture. Only more classes than that need
// colours to tell them apart.
ClassLook look_of(int label, int num_classes) {
  const int turns = (num_classes + kShapes * kTextures - 1) / (kShapes * kTextures);
  const float width = 1.0f / static_cast<float>(turns);
  return {label % kShapes, label % kTextures, static_cast<float>(label / (kShapes * kTextures)) * width, width};
}

Colour from_hue(float hue, float saturation, float value) {
  Colour rgb{};
  for (size_t c = 0; c < 3; ++c) {
    const float k = std::fmod(static_cast<float>(c == 0 ? 5 : c == 1 ? 3 : 1) + hue * 6.0f, 6.0f);
    rgb[c] = value - value * saturation * std::max(0.0f, std::min({k, 4.0f - k, 1.0f}));
  }
  return rgb;
}

// Signed distance to the shape's edge in units of its size: negative inside.
float distance_to(int shape, float x, float y) {
  const float ax = std::abs(x), ay = std::abs(y), r = std::sqrt(x * x + y * y);
  switch (shape) {
    case 0:  // disc
      return r - 0.8f;
    case 1:  // square
      return std::max(ax, ay) - 0.7f;
    case 2:  // triangle
      return std::max(0.866f * ax + 0.5f * y, -y) - 0.45f;
    case 3:  // ring
      return std::abs(r - 0.62f) - 0.2f;
    case 4:  // cross
      return std::min(std::max(ax - 0.85f, ay - 0.25f), std::max(ax - 0.25f, ay - 0.85f));
    case 5:  // two discs
      return std::sqrt((ax - 0.5f) * (ax - 0.5f) + y * y) - 0.4f;
    case 6:  // bar
      return std::max(ax - 0.95f, ay - 0.3f);
    default:  // star
      return r - 0.5f - 0.25f * std::cos(5.0f * std::atan2(y, x));
  }
}

struct Scene {
  ClassLook look;
  float x, y, size, cosine, sine, wave_x, wave_y, phase, stripe;
  Colour inside, outside, far_side;
};

Scene draw_scene(const SynthConfig& config, int label, KeyedStream& draw) {
  const auto between = [&](double lo, double hi) { return static_cast<float>(draw.uniform(lo, hi)); };
  Scene scene{};
  scene.look = look_of(label, config.num_classes);
  const auto side = static_cast<float>(std::min(config.width, config.height));
  scene.size = side * between(0.3, 0.48);
  scene.x = between(0.4, 0.6) * static_cast<float>(config.width);
  scene.y = between(0.4, 0.6) * static_cast<float>(config.height);
  const float angle = between(0.0, 1.0) * kTau;
  scene.cosine = std::cos(angle);
  scene.sine = std::sin(angle);
  const float hue = scene.look.hue + between(0.05, 0.95) * scene.look.hue_width;
  // Light on dark or dark on light, as likely: the mean says nothing either.
  const bool light = between(0, 1) < 0.5f;
  scene.inside = from_hue(hue, between(0.5, 1.0), light ? between(0.65, 1.0) : between(0.05, 0.4));
  scene.outside = from_hue(between(0, 1), between(0.0, 0.75), light ? between(0.05, 0.4) : between(0.65, 1.0));
  scene.far_side = from_hue(between(0, 1), between(0.0, 0.75), light ? between(0.05, 0.4) : between(0.65, 1.0));
  scene.wave_x = between(-3, 3) * kTau / static_cast<float>(config.width);
  scene.wave_y = between(-3, 3) * kTau / static_cast<float>(config.height);
  scene.phase = between(0, 1) * kTau;
  scene.stripe = between(6, 10);
  return scene;
}

void paint(const Scene& scene, const SynthConfig& config, uint64_t noise_seed, uint8_t* pixels) {
  uint64_t noise = noise_seed | 1;
  const float inverse = 1.0f / scene.size, edge = 1.5f * inverse;
  for (int y = 0; y < config.height; ++y) {
    for (int x = 0; x < config.width; ++x, pixels += 3) {
      const float dx = (static_cast<float>(x) - scene.x) * inverse, dy = (static_cast<float>(y) - scene.y) * inverse;
      const float u = scene.cosine * dx + scene.sine * dy, v = scene.cosine * dy - scene.sine * dx;
      float cover = std::clamp(0.5f - distance_to(scene.look.shape, u, v) / edge, 0.0f, 1.0f);
      // Stripes, checks: places where the background shines through.
      const bool across = std::sin(u * scene.stripe) > 0, along = std::sin(v * scene.stripe) > 0;
      if ((scene.look.texture == 1 && !across) || (scene.look.texture == 2 && across != along)) cover *= 0.3f;
      const float blend = 0.5f + 0.5f * std::sin(scene.wave_x * static_cast<float>(x) +
                                                 scene.wave_y * static_cast<float>(y) + scene.phase);
      noise ^= noise << 13;
      noise ^= noise >> 7;
      noise ^= noise << 17;
      for (size_t c = 0; c < 3; ++c) {
        const float behind = scene.outside[c] + blend * (scene.far_side[c] - scene.outside[c]);
        const float grain = static_cast<float>(noise >> (8 * c) & 15) - 7.5f;
        const float value = 255.0f * (behind + cover * (scene.inside[c] - behind)) + grain;
        pixels[c] = static_cast<uint8_t>(std::clamp(value, 0.0f, 255.0f));
      }
    }
  }
}

std::string class_folder(int label) {
  std::array<char, 32> name{};
  std::snprintf(name.data(), name.size(), "class_%03d", label);
  return name.data();
}

std::filesystem::path make_pictures(const SynthConfig& config, Part part, int64_t count,
                                    const std::filesystem::path& folder, SynthResult& result) {
  for (int label = 0; label < config.num_classes; ++label)
    posix_file_ops().make_directory(folder / class_folder(label));
  const bool png = config.format == "png";
  std::vector<std::string> lines(static_cast<size_t>(count));
  std::atomic<uint64_t> bytes = 0;
  for_each_item(count, config.num_threads, [&](int64_t item) {
    KeyedStream draw = stream(config.seed, static_cast<uint64_t>(part), static_cast<uint64_t>(item), Draw::Image);
    const auto label = static_cast<int>(item % config.num_classes);
    const Scene scene = draw_scene(config, label, draw);
    const Array image = Array::empty(Dtype::U8, {config.height, config.width, 3});
    paint(scene, config, draw.next_u64(), image.as<uint8_t>().data());
    const std::string encoded = png ? encode_png(rgb_view(image)) : encode_jpeg(rgb_view(image), config.quality);
    std::array<char, 32> name{};
    std::snprintf(name.data(), name.size(), "%07lld%s", static_cast<long long>(item), png ? ".png" : ".jpg");
    const std::string file = class_folder(label) + "/" + name.data();
    write_item(folder / file, encoded);
    bytes += encoded.size();
    lines[static_cast<size_t>(item)] = nlohmann::ordered_json{{"path", file}, {"label", label}}.dump();
  });
  if (config.index) write_file_atomic(folder / "index.jsonl", join(lines, "\n") + "\n");
  result.num_items += count;
  result.num_bytes += bytes;
  return folder;
}

}  // namespace

SynthResult make_images(const SynthConfig& config, const std::filesystem::path& out) {
  SynthResult result;
  result.train = make_pictures(config, Part::Train, config.num, out / "train", result);
  if (config.num_validation > 0)
    result.validation = make_pictures(config, Part::Validation, config.num_validation, out / "validation", result);
  return result;
}

}  // namespace redline::data::synth
