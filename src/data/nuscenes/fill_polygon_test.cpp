#include "data/nuscenes/fill_polygon.h"

#include <gtest/gtest.h>

#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "core/strings.h"

namespace redline::data::nuscenes {
namespace {

// Inside, across the border, beyond it, and crossing themselves: tests/tools/make_polygon_fixtures.py.
TEST(FillPolygon, SetsTheCellsOfOpenCv) {
  std::ifstream file(std::string(REDLINE_FIXTURES) + "/polygons/cells.txt");
  std::string line;
  int count = 0;
  while (std::getline(file, line)) {
    std::istringstream words(line);
    int64_t rows = 0, columns = 0;
    words >> rows >> columns;
    std::vector<Cell> corners;
    std::string word;
    while (words >> word && word != ":") {
      const auto parts = split(word, ',');
      corners.push_back({std::stoll(parts[0]), std::stoll(parts[1])});
    }
    std::vector<float> map(static_cast<size_t>(rows * columns), 0.0f);
    fill_polygon(corners, rows, columns, 1.0f, map.data());
    for (int64_t r = 0; r < rows; ++r) {
      words >> word;
      uint64_t found = 0;
      for (int64_t c = 0; c < columns; ++c)
        found = found << 1 | (map[static_cast<size_t>(r * columns + c)] > 0.5f ? 1 : 0);
      ASSERT_EQ(found, std::stoull(word, nullptr, 16)) << line << "\nrow " << r;
    }
    ++count;
  }
  EXPECT_EQ(count, 160);
}

TEST(FillPolygon, ADotAndALine) {
  std::vector<float> map(25, 0.0f);
  const Cell dot[] = {{2, 2}, {2, 2}, {2, 2}, {2, 2}};
  fill_polygon(dot, 5, 5, 1.0f, map.data());
  EXPECT_EQ(map[12], 1.0f);
  float sum = 0;
  for (float value : map) sum += value;
  EXPECT_EQ(sum, 1.0f);
  const Cell far[] = {{100, 100}, {110, 100}, {110, 120}};
  fill_polygon(far, 5, 5, 1.0f, map.data());
  sum = 0;
  for (float value : map) sum += value;
  EXPECT_EQ(sum, 1.0f) << "nothing of a polygon elsewhere";
}

}  // namespace
}  // namespace redline::data::nuscenes
