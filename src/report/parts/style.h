// The report's style sheet: one place for colours, light and dark, wide and narrow.
#pragma once

#include <string_view>

namespace redline::report {
std::string_view style_sheet();
}  // namespace redline::report
