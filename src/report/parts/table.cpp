#include "report/parts/table.h"

#include <fmt/format.h>

#include "draw/escape.h"

namespace redline::report {

std::string HtmlTable::markup() const {
  std::string out = "<div class=\"scroll\"><table><thead><tr>";
  for (const Column& column : columns_) out += "<th>" + draw::escape_html(column.title) + "</th>";
  out += "</tr></thead><tbody>";
  for (const auto& row : rows_) {
    out += "<tr>";
    for (size_t c = 0; c < columns_.size(); ++c) {
      const std::string cell = c < row.size() ? row[c] : "";
      const std::string kind = columns_[c].kind + (cell.empty() ? " none" : "");
      out += "<td" + (kind.empty() ? "" : fmt::format(" class=\"{}\"", kind)) +
             fmt::format(" data-label=\"{}\">", draw::escape_html(columns_[c].title)) + cell + "</td>";
    }
    out += "</tr>";
  }
  return out + "</tbody></table></div>";
}

}  // namespace redline::report
