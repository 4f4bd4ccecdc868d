// The tree of values. Keys are found by walking the entries: maps in a config are short, and their order is kept for
// the dump.
#include "config/node.h"

#include <algorithm>
#include <cmath>

#include "config/request/messages.h"
#include "core/strings.h"

namespace redline::config {

namespace {

constexpr size_t kMaxPathWords = 64;

std::vector<std::string> path_words(std::string_view dotted, const Origin& where) {
  std::vector<std::string> words = split(dotted, '.');
  const bool gap = std::any_of(words.begin(), words.end(), [](const std::string& word) { return word.empty(); });
  if (gap || words.size() > kMaxPathWords) {
    fail_at(where, shown(dotted) + " is not a key; write words joined by single dots, as in trainer.precision.");
  }
  return words;
}

// "2" -> 2 when the list has such an item.
std::optional<size_t> list_index(const std::string& word, size_t size) {
  const std::optional<int64_t> index = parse_int(word);
  if (!index || *index < 0 || static_cast<size_t>(*index) >= size) return std::nullopt;
  return static_cast<size_t>(*index);
}

}  // namespace

std::string Origin::text() const {
  const std::string place = line > 0 ? source + ":" + std::to_string(line) + ":" + std::to_string(column) : source;
  std::string words;
  switch (kind) {
    case OriginKind::Default:
      words = "default";
      break;
    case OriginKind::File:
      words = place;
      break;
    case OriginKind::Preset:
      words = "preset " + place;
      break;
    case OriginKind::Flag:
      words = "flag " + place;
      break;
    case OriginKind::Resolved:
      words = source.empty() ? "resolved" : "resolved from " + place;
      break;
    case OriginKind::Tuned:
      words = source.empty() ? "tuned" : "tuned by " + place;
      break;
  }
  if (!alias.empty()) words += " (as " + alias + ")";
  return words;
}

Origin Origin::key() const {
  Origin place = *this;
  if (key_line > 0) place.line = key_line, place.column = key_column;
  return place;
}

bool reads_as_non_string(std::string_view text) {
  if (text.empty() || text == "~" || text == "???") return true;
  const std::string word = to_lower(text);
  if (word == "null" || word == "y" || word == "n") return true;
  const Node plain = Node::scalar(std::string(text));
  return plain.as_bool() || plain.as_double();
}

Node Node::scalar(std::string text, bool quoted) {
  Node node;
  node.kind_ = Kind::Scalar;
  node.text_ = std::move(text);
  node.quoted_ = quoted;
  return node;
}

Node Node::list(std::vector<Node> items) {
  Node node;
  node.kind_ = Kind::List;
  node.items_ = std::move(items);
  return node;
}

Node Node::map(std::vector<Entry> entries) {
  Node node;
  node.kind_ = Kind::Map;
  node.entries_ = std::move(entries);
  return node;
}

std::optional<bool> Node::as_bool() const {
  if (!is_scalar() || quoted_) return std::nullopt;
  const std::string word = to_lower(text_);
  if (word == "true" || word == "yes" || word == "on") return true;
  if (word == "false" || word == "no" || word == "off") return false;
  return std::nullopt;
}

// Also 1e5 and 8.0: what is written as a real number but is a whole one.
std::optional<int64_t> Node::as_int() const {
  if (!is_scalar() || quoted_) return std::nullopt;
  if (const std::optional<int64_t> whole = parse_int(text_)) return whole;
  const std::optional<double> real = parse_double(text_);
  if (real && std::abs(*real) <= 9007199254740992.0 && *real == std::floor(*real)) return static_cast<int64_t>(*real);
  return std::nullopt;
}

std::optional<double> Node::as_double() const {
  if (!is_scalar() || quoted_) return std::nullopt;
  if (const std::optional<double> real = parse_double(text_)) return real;
  const std::optional<int64_t> whole = parse_int(text_);  // 1_000
  return whole ? std::optional<double>(static_cast<double>(*whole)) : std::nullopt;
}

const Node* Node::find(std::string_view key) const {
  for (const Entry& entry : entries_) {
    if (entry.first == key) return &entry.second;
  }
  return nullptr;
}

Node* Node::find(std::string_view key) { return const_cast<Node*>(std::as_const(*this).find(key)); }

const Node* Node::find_path(std::string_view dotted) const {
  const Node* node = this;
  for (const std::string& word : split(dotted, '.')) {
    if (node->is_list()) {
      const std::optional<size_t> index = list_index(word, node->items_.size());
      node = index ? &node->items_[*index] : nullptr;
    } else {
      node = node->find(word);
    }
    if (node == nullptr) return nullptr;
  }
  return node;
}

Node* Node::find_path(std::string_view dotted) { return const_cast<Node*>(std::as_const(*this).find_path(dotted)); }

Node& Node::set_path(std::string_view dotted, Node value) {
  Node* node = this;
  for (const std::string& word : path_words(dotted, value.origin)) {
    if (node->is_list()) {
      const std::optional<size_t> index = list_index(word, node->items_.size());
      if (!index) {
        fail_at(value.origin, shown(word) + " in " + shown(dotted) + " is not an item of a list of " +
                                  std::to_string(node->items_.size()) + "; count from 0, or give the whole list.");
      }
      node = &node->items_[*index];
      continue;
    }
    if (node->is_scalar()) {
      fail_at(value.origin, shown(dotted) + " leads through the value " + shown(node->text_) + " (" +
                                node->origin.text() + "), which has no keys; remove one of the two.");
    }
    if (node->is_null()) {
      node->kind_ = Kind::Map;
      node->origin = value.origin;
    }
    Node* child = node->find(word);
    node = child != nullptr ? child : &node->entries_.emplace_back(word, Node()).second;
  }
  *node = std::move(value);
  return *node;
}

bool Node::remove_path(std::string_view dotted) {
  const size_t dot = dotted.rfind('.');
  Node* parent = dot == std::string_view::npos ? this : find_path(dotted.substr(0, dot));
  if (parent == nullptr) return false;
  const std::string_view key = dot == std::string_view::npos ? dotted : dotted.substr(dot + 1);
  if (parent->is_list()) {
    const std::optional<size_t> index = list_index(std::string(key), parent->items_.size());
    if (index) parent->items_.erase(parent->items_.begin() + static_cast<ptrdiff_t>(*index));
    return index.has_value();
  }
  return std::erase_if(parent->entries_, [&](const Entry& entry) { return entry.first == key; }) > 0;
}

bool Node::operator==(const Node& other) const {
  if (kind_ != other.kind_ || text_ != other.text_) return false;
  if (quoted_ != other.quoted_ && reads_as_non_string(text_)) return false;
  if (items_ != other.items_ || entries_.size() != other.entries_.size()) return false;
  for (size_t i = 0; i < entries_.size(); ++i) {
    const bool same_place = other.entries_[i].first == entries_[i].first;
    const Node* twin = same_place ? &other.entries_[i].second : other.find(entries_[i].first);
    if (twin == nullptr || !(*twin == entries_[i].second)) return false;
  }
  return true;
}

size_t Node::count() const {
  size_t total = 1;
  for (const Node& item : items_) total += item.count();
  for (const Entry& entry : entries_) total += entry.second.count();
  return total;
}

}  // namespace redline::config
