#include "draw/escape.h"

#include "core/strings.h"

namespace redline::draw {

std::string escape_html(std::string_view text) {
  std::string safe;
  for (char c : printable(text)) {
    switch (c) {
      case '&':
        safe += "&amp;";
        break;
      case '<':
        safe += "&lt;";
        break;
      case '>':
        safe += "&gt;";
        break;
      case '"':
        safe += "&quot;";
        break;
      case '\'':
        safe += "&#39;";
        break;
      default:
        safe += c;
    }
  }
  return safe;
}

}  // namespace redline::draw
