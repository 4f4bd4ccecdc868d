#include "models/sequence_vae/plots.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <png.h>

#include <cmath>

namespace redline::models::sequence_vae {
namespace {

using ::testing::HasSubstr;

PosteriorPicture some_picture() {
  PosteriorPicture p;
  p.step = 3000;
  for (int64_t i = 0; i < 30; ++i)
    p.history.push_back(
        {100 * i, 8.0 - 0.2 * static_cast<double>(i), 2.0, 50.0 - static_cast<double>(i), 1.0, 4, i > 20 ? 2 : 0});
  p.kl_per_dim = {2.0, 0.001, 1.2, 0.3};
  p.variance = {1.0, 0.0001, 0.5, 0.02};
  p.verdict.level = Collapse::Full;
  p.verdict.since_step = 2100;
  p.verdict.reasons = {"KL < 0.1 & \"nothing\" left"};
  return p;
}

// Every opening tag is closed in order: enough to know that a browser will parse it.
bool balanced(const std::string& text) {
  std::vector<std::string> open;
  for (size_t i = text.find('<'); i != std::string::npos; i = text.find('<', i + 1)) {
    const size_t end = text.find('>', i);
    if (end == std::string::npos) return false;
    const std::string tag = text.substr(i + 1, end - i - 1), name = tag.substr(0, tag.find_first_of(" /\n"));
    if (tag.back() == '/') continue;
    if (tag[0] != '/') {
      open.push_back(name);
    } else {
      if (open.empty() || "/" + open.back() != tag) return false;
      open.pop_back();
    }
  }
  return open.empty();
}

TEST(Plots, SvgIsWellFormedAndEscapesText) {
  for (const std::string& svg : {history_svg(some_picture()), dimensions_svg(some_picture())}) {
    EXPECT_TRUE(balanced(svg));
    EXPECT_THAT(svg, HasSubstr("KL &lt; 0.1 &amp; &quot;nothing&quot; left"));
    EXPECT_THAT(svg, HasSubstr("since step 2100"));
    EXPECT_EQ(svg.find("nan"), std::string::npos);
    EXPECT_EQ(svg.find("inf,"), std::string::npos);
  }
}

TEST(Plots, HistoryShadesCollapsedSpansOnly) {
  PosteriorPicture healthy = some_picture();
  const std::string shade = "fill=\"#dc2626\" fill-opacity=\"0.1\"";
  EXPECT_THAT(history_svg(healthy), HasSubstr(shade));
  for (HistoryPoint& point : healthy.history) point.collapse = 0;
  EXPECT_EQ(history_svg(healthy).find(shade), std::string::npos);
}

TEST(Plots, AnEmptyOrOddHistoryStillDraws) {
  PosteriorPicture p = some_picture();
  p.history.clear();
  EXPECT_THAT(history_svg(p), HasSubstr("nothing recorded yet"));
  p.history = {{100, NAN, 1.0, INFINITY, 1.0, 2, 0}};
  EXPECT_TRUE(balanced(history_svg(p)));
  EXPECT_EQ(history_svg(p).find("nan"), std::string::npos);
  p.kl_per_dim.assign(200, 0.5);
  p.variance.assign(200, 0.0);
  EXPECT_TRUE(balanced(dimensions_svg(p)));
}

TEST(Plots, PngDecodesToThePageWithInkOnIt) {
  for (const std::string& bytes : {history_png(some_picture()), dimensions_png(some_picture())}) {
    png_image image{};
    image.version = PNG_IMAGE_VERSION;
    ASSERT_NE(png_image_begin_read_from_memory(&image, bytes.data(), bytes.size()), 0);
    image.format = PNG_FORMAT_RGB;
    std::vector<uint8_t> pixels(PNG_IMAGE_SIZE(image));
    ASSERT_NE(png_image_finish_read(&image, nullptr, pixels.data(), 0, nullptr), 0);
    EXPECT_EQ(image.width, 1920u);
    EXPECT_EQ(image.height, 1200u);
    size_t blue = 0, white = 0;
    for (size_t i = 0; i < pixels.size(); i += 3) {
      blue += pixels[i] == 37 && pixels[i + 1] == 99 && pixels[i + 2] == 235 ? 1 : 0;
      white += pixels[i] == 255 && pixels[i + 1] == 255 && pixels[i + 2] == 255 ? 1 : 0;
    }
    EXPECT_GT(blue, 100u);
    EXPECT_GT(white, pixels.size() / 3 / 2);
  }
}

}  // namespace
}  // namespace redline::models::sequence_vae
