// Line by line over a text of JSON objects, one a line; empty lines count but are passed over. The parser reads beyond
// a line (SIMDJSON_PADDING): into the next one, or into the padding of the copy made here.
#pragma once

#include <simdjson.h>

#include <algorithm>
#include <string_view>

namespace redline::data {

// Calls read(parser, row, line) for each row; lines count from 1.
template <class Read>
void for_each_json_line(std::string_view text, const Read& read) {
  const simdjson::padded_string padded(text);
  const std::string_view all(padded.data(), padded.size());
  simdjson::dom::parser parser;
  int line = 0;
  for (size_t begin = 0; begin < all.size();) {
    const size_t end = std::min(all.find('\n', begin), all.size());
    const std::string_view row = all.substr(begin, end - begin);
    begin = end + 1;
    ++line;
    if (row.find_first_not_of(" \t\r") != std::string_view::npos) read(parser, row, line);
  }
}

}  // namespace redline::data
