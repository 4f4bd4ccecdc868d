// Text broken into lines of a terminal's width; control characters are made visible on the way.
#pragma once

#include <string>

namespace redline::report {

// Words longer than the width stand alone.
std::string wrap_text(const std::string& text, int width, const std::string& indent = "");
// A list item: "  - ", its later lines indented like the first.
std::string wrap_item(const std::string& text, int width);

}  // namespace redline::report
