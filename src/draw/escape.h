// Text from outside (run names, paths, config values, event texts) on its way into HTML. Everything passes through
// here: names are not trusted.
#pragma once

#include <string>
#include <string_view>

namespace redline::draw {

// For element content and quoted attributes; control characters become visible text.
std::string escape_html(std::string_view text);

}  // namespace redline::draw
