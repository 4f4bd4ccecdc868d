#include "data/images/image_transforms.h"

#include <gtest/gtest.h>

#include <cmath>

#include "core/error.h"
#include "data/codecs/image_writer.h"

namespace redline::data {
namespace {

std::vector<float> floats(const Sample& sample, const char* name) {
  const auto span = sample.find(name)->as<float>();
  return {span.begin(), span.end()};
}

Sample encoded_picture(const Array& pixels, const std::string& field = "image") {
  const std::string png = encode_png(rgb_view(pixels));
  Sample sample;
  sample.id = 8;
  Array bytes = Array::empty(Dtype::U8, {static_cast<int64_t>(png.size())});
  std::copy(png.begin(), png.end(), reinterpret_cast<char*>(bytes.data()));
  sample.set(field + "_bytes", bytes);
  return sample;
}

Array gradient(int32_t width, int32_t height) {
  Array image = Array::empty(Dtype::U8, {height, width, 3});
  for (int32_t y = 0; y < height; ++y) {
    for (int32_t x = 0; x < width; ++x) {
      uint8_t* pixel = image.as<uint8_t>().data() + (y * width + x) * 3;
      pixel[0] = static_cast<uint8_t>(x * 255 / width), pixel[1] = static_cast<uint8_t>(y * 255 / height),
      pixel[2] = 128;
    }
  }
  return image;
}

TEST(DrawCrop, StaysInsideAndFollowsItsRanges) {
  ImageSettings settings;
  settings.crop = ImageCrop::RandomResized;
  for (uint64_t i = 0; i < 500; ++i) {
    KeyedStream stream(i, 0, 0, 1);
    const CropBox box = draw_crop(settings, 300, 200, stream);
    EXPECT_GE(box.x0, 0);
    EXPECT_LE(box.x1, 300);
    EXPECT_LE(box.y1, 200);
    const double area = (box.x1 - box.x0) * (box.y1 - box.y0) / 60000.0, ratio = (box.x1 - box.x0) / (box.y1 - box.y0);
    EXPECT_GE(area, 0.07);
    EXPECT_LE(ratio, 1.36);
    EXPECT_GE(ratio, 0.73);
  }
  settings.min_scale = settings.max_scale = 1.0;
  KeyedStream stream(1, 0, 0, 1);
  const CropBox fallback = draw_crop(settings, 400, 100, stream);
  EXPECT_NEAR((fallback.x1 - fallback.x0) / (fallback.y1 - fallback.y0), 4.0 / 3.0, 0.02)
      << "no box fits: the centre at the nearest ratio";
  settings.crop = ImageCrop::Center;
  const CropBox center = draw_crop(settings, 400, 200, stream);
  EXPECT_DOUBLE_EQ(center.y1 - center.y0, 175.0);
  EXPECT_DOUBLE_EQ(center.x1 - center.x0, 175.0);
}

TEST(PrepareImage, SameFromBytesAndFromPixels) {
  const Array pixels = gradient(120, 90);
  const std::string png = encode_png(rgb_view(pixels));
  ImageSettings settings;
  settings.width = settings.height = 32;
  settings.crop = ImageCrop::RandomResized;
  settings.flip_chance = 0.5;
  for (double degrees : {0.0, 10.0}) {
    settings.max_degrees = degrees;
    for (uint64_t epoch = 0; epoch < 4; ++epoch) {
      Sample encoded, decoded;
      encoded.id = decoded.id = 8;
      Array bytes = Array::empty(Dtype::U8, {static_cast<int64_t>(png.size())});
      std::copy(png.begin(), png.end(), reinterpret_cast<char*>(bytes.data()));
      encoded.set("image_bytes", bytes);
      decoded.set("image_bytes", bytes);
      DecodeImage().apply(decoded, {});
      PrepareImage(settings).apply(encoded, {1, epoch});
      PrepareImage(settings).apply(decoded, {1, epoch});
      EXPECT_EQ(encoded.find("image")->shape(), (Shape{3, 32, 32}));
      EXPECT_EQ(encoded.find("image_bytes"), nullptr);
      EXPECT_EQ(floats(encoded, "image"), floats(decoded, "image"));
    }
  }
}

TEST(PrepareImage, NormalisesAndNamesWhatIsWrong) {
  const Array grey = Array::zeros(Dtype::U8, {8, 8, 3});
  for (uint8_t& v : grey.as<uint8_t>()) v = 255;
  Sample sample;
  sample.set("image", grey);
  ImageSettings settings;
  settings.width = settings.height = 4;
  PrepareImage(settings).apply(sample, {});
  EXPECT_NEAR(floats(sample, "image")[0], (1.0 - 0.485) / 0.229, 1e-5);
  EXPECT_NEAR(floats(sample, "image")[47], (1.0 - 0.406) / 0.225, 1e-5);
  Sample junk;
  Array bytes = Array::zeros(Dtype::U8, {100});
  junk.set("image_bytes", bytes);
  EXPECT_THROW(PrepareImage(settings).apply(junk, {}), DataError);
}

// Normalising in one pass and normalising what a transform saw as pixels give the same picture.
TEST(CropImage, ThenNormalizeIsPrepareImage) {
  ImageSettings settings;
  settings.width = settings.height = 32;
  settings.crop = ImageCrop::RandomResized;
  settings.flip_chance = 0.5;
  for (double degrees : {0.0, 10.0}) {
    settings.max_degrees = degrees;
    for (uint64_t epoch = 0; epoch < 4; ++epoch) {
      Sample whole = encoded_picture(gradient(120, 90)), parts = encoded_picture(gradient(120, 90));
      PrepareImage(settings).apply(whole, {1, epoch});
      CropImage(settings).apply(parts, {1, epoch});
      EXPECT_EQ(parts.find("image")->dtype(), Dtype::U8);
      EXPECT_EQ(parts.find("image")->shape(), (Shape{32, 32, 3}));
      NormalizeImage(settings.normalization).apply(parts, {1, epoch});
      EXPECT_EQ(floats(whole, "image"), floats(parts, "image"));
    }
  }
}

// The gradient's red value is the place it came from: the matrix must send a stored pixel to where its value is now.
TEST(CropImage, LeavesTheMatrixOfWhatItDid) {
  ImageSettings settings;
  settings.width = settings.height = 64;
  settings.crop = ImageCrop::RandomResized;
  settings.min_scale = 0.3;
  settings.flip_chance = 0.5;
  int flipped = 0;
  for (double degrees : {0.0, 25.0}) {
    settings.max_degrees = degrees;
    for (uint64_t epoch = 0; epoch < 8; ++epoch) {
      Sample sample = encoded_picture(gradient(255, 255));
      CropImage(settings).apply(sample, {1, epoch});
      const auto m = floats(sample, "image_matrix");
      flipped += m[0] < 0;
      const auto pixels = sample.find("image")->as<uint8_t>();
      int seen = 0;
      for (int y = 0; y < 255; y += 10) {
        for (int x = 0; x < 255; x += 10) {
          const float u = m[0] * (x + 0.5f) + m[1] * (y + 0.5f) + m[2],
                      v = m[3] * (x + 0.5f) + m[4] * (y + 0.5f) + m[5];
          const int i = static_cast<int>(std::floor(u)), j = static_cast<int>(std::floor(v));
          if (i < 3 || i > 60 || j < 3 || j > 60) continue;  // the edges are filtered with what is not there
          const uint8_t* pixel = pixels.data() + (j * 64 + i) * 3;
          if (pixel[2] == 0) continue;  // outside of the turned picture
          ++seen;
          EXPECT_NEAR(pixel[0], x, 8) << x << " " << y;
          EXPECT_NEAR(pixel[1], y, 8) << x << " " << y;
        }
      }
      EXPECT_GT(seen, 20);
    }
  }
  EXPECT_GT(flipped, 2);
  EXPECT_LT(flipped, 14);
}

// Several pictures are fields of one sample; each draws for itself.
TEST(PrepareImage, HandlesOneOfSeveralPictures) {
  ImageSettings settings;
  settings.width = settings.height = 16;
  settings.crop = ImageCrop::RandomResized;
  Sample sample = encoded_picture(gradient(120, 90), "front");
  const Sample back = encoded_picture(gradient(120, 90), "back");
  sample.set("back_bytes", *back.find("back_bytes"));
  for (const char* camera : {"front", "back"}) PrepareImage(settings, camera).apply(sample, {1, 0});
  EXPECT_EQ(sample.fields.size(), 2u);
  EXPECT_NE(floats(sample, "front"), floats(sample, "back"));
  Sample alone = encoded_picture(gradient(120, 90), "back");
  PrepareImage(settings, "back").apply(alone, {1, 0});
  EXPECT_EQ(floats(alone, "back"), floats(sample, "back"));
}

}  // namespace
}  // namespace redline::data
