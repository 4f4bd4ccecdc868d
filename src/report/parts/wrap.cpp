#include "report/parts/wrap.h"

#include "core/strings.h"

namespace redline::report {

std::string wrap_text(const std::string& text, int width, const std::string& indent) {
  std::string out, line = indent;
  for (const std::string& word : split(printable(text), ' ')) {
    if (static_cast<int>(line.size() + word.size()) + 1 > width && line.size() > indent.size()) {
      out += line + "\n";
      line = indent;
    }
    line += (line.size() > indent.size() ? " " : "") + word;
  }
  return out + line + "\n";
}

std::string wrap_item(const std::string& text, int width) {
  std::string out = wrap_text(text, width, "    ");
  out[2] = '-';
  return out;
}

}  // namespace redline::report
