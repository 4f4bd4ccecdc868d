// Tables that become cards on a phone: every cell knows its column's name, which the style sheet shows there.
#pragma once

#include <string>
#include <vector>

namespace redline::report {

struct Column {
  std::string title;
  std::string kind;  // class of its cells: "n" a number, "why" a sentence, "switch" a key; empty: text
};

class HtmlTable {
 public:
  explicit HtmlTable(std::vector<Column> columns) : columns_(std::move(columns)) {}
  // Cells are markup already; an empty one is left out of a card.
  void add(std::vector<std::string> cells) { rows_.push_back(std::move(cells)); }
  bool empty() const { return rows_.empty(); }
  size_t size() const { return rows_.size(); }
  std::string markup() const;

 private:
  std::vector<Column> columns_;
  std::vector<std::vector<std::string>> rows_;
};

}  // namespace redline::report
