#include "report/parts/pictures.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/file_ops.h"

namespace redline::report {
namespace {

using testing::HasSubstr;
using testing::Not;

TEST(Pictures, Base64IsTheStandards) {
  EXPECT_EQ(base64(""), "");
  EXPECT_EQ(base64("f"), "Zg==");
  EXPECT_EQ(base64("fo"), "Zm8=");
  EXPECT_EQ(base64("foobar"), "Zm9vYmFy");
  EXPECT_EQ(base64(std::string("\xff\x00\xfe", 3)), "/wD+");
}

TEST(Pictures, OnlyPngFilesOfTheRunAreShown) {
  const auto folder = std::filesystem::temp_directory_path() / "redline_pictures_test";
  std::filesystem::remove_all(folder);
  EXPECT_EQ(pictures_html(folder, "run"), "");
  std::filesystem::create_directories(folder / "plots");
  const std::string png = "\x89PNG\r\n\x1a\n and more";
  write_file_atomic(folder / "plots" / "a<b.png", png);
  write_file_atomic(folder / "plots" / "fake.png", "<svg onload=1>");
  write_file_atomic(folder / "plots" / "drawing.svg", "<svg></svg>");
  const std::string html = pictures_html(folder, "run <1>");
  EXPECT_THAT(html, HasSubstr("src=\"data:image/png;base64," + base64(png) + "\""));
  EXPECT_THAT(html, HasSubstr("a&lt;b of run &lt;1&gt;"));
  EXPECT_THAT(html, Not(HasSubstr("svg")));
  EXPECT_THAT(html, Not(HasSubstr("fake")));
  std::filesystem::remove_all(folder);
}

}  // namespace
}  // namespace redline::report
