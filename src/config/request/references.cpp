#include "config/request/references.h"

#include <algorithm>
#include <unordered_set>
#include <vector>

#include "config/request/canonical.h"
#include "config/request/limits.h"
#include "config/request/messages.h"
#include "core/strings.h"

namespace redline::config {

namespace {

constexpr size_t kMaxTextBytes = size_t{1} << 20;

// One piece of a scalar: plain text, or what stands between ${ and its closing brace.
struct Piece {
  bool is_reference = false;
  std::string text;
};

size_t closing_brace(std::string_view text, size_t begin, const Origin& where) {
  size_t depth = 1;
  for (size_t i = begin; i < text.size(); ++i) {
    if (text[i] == '{' && ++depth > kMaxDepth) {
      fail_at(where, "references are nested more than " + std::to_string(kMaxDepth) + " deep; shorten them.");
    }
    if (text[i] == '}' && --depth == 0) return i;
  }
  fail_at(where, "'${' has no closing '}' in " + shown(text) + "; add it, or write \\${ to keep the text.");
}

std::vector<Piece> cut_pieces(std::string_view text, const Origin& where) {
  std::vector<Piece> pieces;
  std::string plain;
  for (size_t i = 0; i < text.size();) {
    if (text[i] != '$' || i + 1 >= text.size() || text[i + 1] != '{') {
      plain += text[i++];
      continue;
    }
    size_t backslashes = 0;
    while (backslashes < plain.size() && plain[plain.size() - 1 - backslashes] == '\\') ++backslashes;
    plain.resize(plain.size() - (backslashes + 1) / 2);
    if (backslashes % 2 == 1) {
      plain += "${";
      i += 2;
      continue;
    }
    const size_t end = closing_brace(text, i + 2, where);
    if (!plain.empty()) pieces.push_back({false, std::move(plain)});
    plain.clear();
    pieces.push_back({true, std::string(text.substr(i + 2, end - i - 2))});
    i = end + 1;
  }
  if (!plain.empty()) pieces.push_back({false, std::move(plain)});
  return pieces;
}

bool has_reference(const Node& node) { return node.is_scalar() && node.text().find("${") != std::string::npos; }

// "..x" at "a.b.c" is "a.x": one dot is the map that holds the key, each further dot one map up.
std::string absolute_name(std::string name, const std::string& at, const Origin& where) {
  name = trim(name);
  for (char& c : name) c = c == '[' ? '.' : c;
  std::erase(name, ']');
  size_t dots = 0;
  while (dots < name.size() && name[dots] == '.') ++dots;
  if (dots == 0) return name;
  std::vector<std::string> words = split(at, '.');
  if (dots > words.size()) fail_at(where, "${" + name + "} goes above the top of the file; remove a dot.");
  words.resize(words.size() - dots);
  words.push_back(name.substr(dots));
  return join(words, ".");
}

size_t depth_of(const Node& node) {
  size_t deepest = 0;
  for (const Node& item : node.items()) deepest = std::max(deepest, 1 + depth_of(item));
  for (const auto& [key, value] : node.entries()) deepest = std::max(deepest, 1 + depth_of(value));
  return deepest;
}

class Resolver {
 public:
  Resolver(Node& tree, const ReferenceSources& sources)
      : tree_(tree), sources_(sources), raw_(sources.raw != nullptr ? *sources.raw : nothing_) {
    total_ = tree.count();
  }

  void visit(Node& node, const std::string& path) {
    if (done_.contains(&node)) return;
    if (std::any_of(open_.begin(), open_.end(), [&](const Open& one) { return one.node == &node; })) circle(node, path);
    if (open_.size() > kMaxReferenceChain + kMaxDepth) {
      fail_at(node.origin,
              path + " is a chain of more than " + std::to_string(kMaxReferenceChain) + " references; shorten it.");
    }
    open_.push_back({&node, path});
    if (has_reference(node)) {
      evaluate(node, path);
    } else {
      for (size_t i = 0; i < node.items().size(); ++i) visit(node.items()[i], path + "." + std::to_string(i));
      for (auto& [key, value] : node.entries()) visit(value, path.empty() ? key : path + "." + key);
    }
    if (node.unconverted != nullptr) convert_alias(node);
    open_.pop_back();
    done_.insert(&node);
  }

 private:
  struct Open {
    const Node* node;
    std::string path;
  };

  [[noreturn]] void circle(const Node& node, const std::string& path) const {
    std::string trail;
    bool inside = false;
    for (const Open& one : open_) {
      inside = inside || one.node == &node;
      if (inside && one.node->is_scalar()) trail += one.path + " -> ";
    }
    fail_at(node.origin, "the reference goes in a circle: " + trail + path + "; give one of them a value.");
  }

  void evaluate(Node& node, const std::string& path) {
    const std::vector<Piece> pieces = cut_pieces(node.text(), node.origin);
    const Origin origin = node.origin;
    const Alias* alias = node.unconverted;
    if (pieces.size() == 1 && pieces[0].is_reference) {
      Node copy = *target(pieces[0].text, path, origin);
      spend(copy, path, origin);
      node = std::move(copy);
      mark_done(node);
    } else {
      node = interpolate(pieces, node.quoted(), path, origin);
    }
    node.origin = origin;
    node.unconverted = alias;
  }

  Node interpolate(const std::vector<Piece>& pieces, bool quoted, const std::string& path, const Origin& where) {
    std::string text;
    for (const Piece& piece : pieces) {
      if (!piece.is_reference) {
        text += piece.text;
        continue;
      }
      const Node& value = *target(piece.text, path, where);
      if (value.is_missing_marker()) return Node::scalar("???");
      if (value.is_map() || value.is_list()) {
        fail_at(where, "${" + piece.text + "} is " + shown(value) +
                           " and cannot stand inside a text; name one of its values.");
      }
      text += value.is_null() ? "null" : value.text();
      if (text.size() > kMaxTextBytes || (total_text_ += value.text().size()) > 16 * kMaxTextBytes) {
        fail_at(where,
                "the references in this text make it longer than " + format_bytes(kMaxTextBytes) + "; shorten it.");
      }
    }
    return Node::scalar(std::move(text), quoted);
  }

  // The value a reference names, itself resolved. Stays valid until the next call.
  const Node* target(const std::string& inner, const std::string& path, const Origin& where) {
    std::string name = inner;
    if (inner.find("${") != std::string::npos) {
      const Node text = interpolate(cut_pieces(inner, where), false, path, where);
      if (text.is_missing_marker()) return &(scratch_ = text);
      name = text.text();
    }
    if (name.find(':') != std::string::npos) {
      fail_at(where, "${" + name +
                         "} calls a resolver, and redline runs none; write the value, or set it on the command line.");
    }
    name = absolute_name(name, path, where);
    if (Node* found = follow(tree_, name)) return found;
    if (Node* found = follow(raw_, name)) return found;
    if (sources_.default_of) {
      if (std::optional<Node> value = sources_.default_of(name)) return &(scratch_ = std::move(*value));
    }
    missing(name, where);
  }

  // Walks a dotted name; a reference on the way is resolved before it is entered.
  Node* follow(Node& root, const std::string& name) {
    Node* node = &root;
    std::string path;
    for (const std::string& word : split(name, '.')) {
      node = node->find_path(word);
      if (node == nullptr) return nullptr;
      path = path.empty() ? word : path + "." + word;
      if (has_reference(*node)) visit(*node, path);
    }
    visit(*node, path);
    return node;
  }

  [[noreturn]] void missing(const std::string& name, const Origin& where) const {
    const Node* node = &raw_;
    std::string known;
    for (const std::string& word : split(name, '.')) {
      const Node* next = node->find_path(word);
      if (next == nullptr) {
        std::vector<std::string> siblings;
        for (const auto& entry : node->entries()) siblings.push_back((known.empty() ? "" : known + ".") + entry.first);
        const auto nearest = did_you_mean((known.empty() ? "" : known + ".") + word, siblings);
        fail_at(where, "${" + name + "} names a key that is not there" +
                           (nearest ? "; did you mean '" + *nearest + "'?" : "; add it or write the value."));
      }
      known += (known.empty() ? "" : ".") + word;
      node = next;
    }
    fail_at(where, "${" + name + "} names a key that is not there; add it or write the value.");
  }

  void spend(const Node& copy, const std::string& path, const Origin& where) {
    total_ += copy.count();
    const auto here = static_cast<size_t>(std::count(path.begin(), path.end(), '.')) + 1;
    if (total_ > kMaxNodes || here + depth_of(copy) > kMaxDepth) {
      fail_at(where, "the references make the config larger than " + std::to_string(kMaxNodes) +
                         " values or deeper than " + std::to_string(kMaxDepth) + "; write fewer of them.");
    }
  }

  void mark_done(const Node& node) {
    done_.insert(&node);
    for (const Node& item : node.items()) mark_done(item);
    for (const auto& [key, value] : node.entries()) mark_done(value);
  }

  Node& tree_;
  const ReferenceSources& sources_;
  Node nothing_ = Node::map();
  Node& raw_;
  Node scratch_;
  std::vector<Open> open_;
  std::unordered_set<const Node*> done_;
  size_t total_ = 0, total_text_ = 0;
};

void collect_references(std::string_view text, const std::string& path, const Origin& where,
                        std::set<std::string>& found) {
  for (const Piece& piece : cut_pieces(text, where)) {
    if (!piece.is_reference || piece.text.find(':') != std::string::npos) continue;
    const size_t inner = piece.text.find("${");
    if (inner != std::string::npos) collect_references(std::string_view(piece.text).substr(inner), path, where, found);
    std::string name = absolute_name(piece.text.substr(0, inner), path, where);
    while (!name.empty() && name.back() == '.') name.pop_back();
    if (!name.empty()) found.insert(std::move(name));
  }
}

void collect_paths(const Node& node, const std::string& path, std::set<std::string>& found) {
  if (has_reference(node)) collect_references(node.text(), path, node.origin, found);
  for (size_t i = 0; i < node.items().size(); ++i)
    collect_paths(node.items()[i], path + "." + std::to_string(i), found);
  for (const auto& [key, value] : node.entries()) collect_paths(value, path.empty() ? key : path + "." + key, found);
}

}  // namespace

void resolve_references(Node& tree, const ReferenceSources& sources) { Resolver(tree, sources).visit(tree, ""); }

std::set<std::string> referenced_paths(const Node& tree) {
  std::set<std::string> found;
  collect_paths(tree, "", found);
  return found;
}

}  // namespace redline::config
