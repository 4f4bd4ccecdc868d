#include "config/request/messages.h"

#include "core/error.h"
#include "core/strings.h"

namespace redline::config {

namespace {

// "list of auto|int" and the like: the innermost word, in the singular or plural.
std::string type_words(std::string_view type, bool plural) {
  if (starts_with(type, "list of ")) return (plural ? "lists of " : "a list of ") + type_words(type.substr(8), true);
  if (type == "bool") return plural ? "true or false words" : "true or false";
  if (type == "int") return plural ? "integers" : "an integer";
  if (type == "number") return plural ? "numbers" : "a number";
  if (type == "string") return plural ? "strings" : "a string";
  return plural ? "values" : "a value";
}

std::string range_words(const Row& row) {
  const auto number = [](double value) { return format_double(value); };
  if (row.min && row.max && !row.min_open && !row.max_open)
    return " from " + number(*row.min) + " to " + number(*row.max);
  std::string words;
  if (row.min) words += (row.min_open ? " above " : " of at least ") + number(*row.min);
  if (row.max)
    words += (words.empty() ? "" : " and") + std::string(row.max_open ? " below " : " of at most ") + number(*row.max);
  return words;
}

std::string unit_words(const std::string& unit) {
  if (unit.empty()) return "";
  if (unit == "seconds" || unit == "s") return " in seconds (also as 90s or 1h30m)";
  if (unit == "bytes") return " in bytes (also as 512MiB)";
  return " in " + unit;
}

}  // namespace

void fail_at(const Origin& where, const std::string& sentence) {
  throw ConfigError(printable(where.text() + ": " + sentence));
}

std::string shown(std::string_view text) {
  constexpr size_t kLongest = 60;
  if (text.size() <= kLongest) return "'" + printable(text) + "'";
  return "'" + printable(text.substr(0, kLongest)) + "...'";
}

std::string shown(const Node& value) {
  switch (value.kind()) {
    case Node::Kind::Null:
      return "null";
    case Node::Kind::Scalar:
      return value.quoted() ? "the string " + shown(value.text()) : shown(value.text());
    case Node::Kind::List:
      return "a list of " + std::to_string(value.items().size());
    case Node::Kind::Map:
      return "a map of " + std::to_string(value.entries().size());
  }
  return "nothing";
}

std::string expected_text(const Row& row) {
  std::string_view type = row.type;
  bool takes_auto = false, takes_null = false;
  while (true) {
    if (starts_with(type, "auto|"))
      takes_auto = true;
    else if (starts_with(type, "null|"))
      takes_null = true;
    else
      break;
    type.remove_prefix(5);
  }
  std::string words = type_words(type, false);
  if (!row.choices.empty()) {
    const std::string list = join(row.choices, ", ");
    words = starts_with(type, "list of ") ? "a list out of " + list : "one of " + list;
  }
  words += range_words(row) + unit_words(row.unit);
  if (takes_auto) words += ", or auto";
  if (takes_null) words += ", or null";
  return words;
}

std::string nearest_text(std::string_view word, const std::vector<std::string>& candidates) {
  if (const auto nearest = did_you_mean(word, candidates)) return "; did you mean '" + *nearest + "'?";
  if (!candidates.empty() && candidates.size() <= 8) return "; there is " + join(candidates, ", ") + ".";
  return "; run 'redline options' for the list.";
}

}  // namespace redline::config
