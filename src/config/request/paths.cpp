#include "config/request/paths.h"

#include <filesystem>

#include "core/strings.h"

namespace redline::config {

namespace {

namespace fs = std::filesystem;

std::string changed_names(const std::string& text, const std::function<std::string(const std::string&)>& change) {
  // NeMo's stand-ins for braces hold commas too.
  const bool whole = text.find("_OP_") != std::string::npos;
  std::string out, one;
  int depth = 0;
  const auto flush = [&] {
    const std::string name = trim(one);
    one.clear();
    if (!name.empty()) out += (out.empty() ? "" : ",") + change(name);
  };
  for (const char c : text) {
    if (c == '{') ++depth;
    if (c == '}') --depth;
    if (c == ',' && depth == 0 && !whole)
      flush();
    else
      one += c;
  }
  flush();
  return out;
}

// Whether there is something, or, of a pattern, the folder it starts in.
bool is_there(const fs::path& path) {
  const std::string text = path.string();
  const size_t pattern = std::min(text.find_first_of("*?[{(<"), text.find("_OP_"));
  std::error_code ignored;
  if (pattern == std::string::npos || fs::exists(path, ignored)) return fs::exists(path, ignored);
  return fs::exists(text.substr(0, text.rfind('/', pattern) + 1), ignored);
}

std::string anchored(const std::string& name, const Origin& origin) {
  if (name.starts_with('/') || name.find("://") != std::string::npos) return name;
  std::error_code failed;
  const fs::path here = fs::current_path(failed);
  if (failed) return name;
  if (origin.kind == OriginKind::Flag || origin.kind == OriginKind::Tuned) return (here / name).lexically_normal();
  if (origin.kind != OriginKind::File && origin.kind != OriginKind::Preset) return name;
  // A preset's source is "NAME, FILE".
  const size_t comma = origin.kind == OriginKind::Preset ? origin.source.find(", ") : std::string::npos;
  const std::string file = comma == std::string::npos ? origin.source : origin.source.substr(comma + 2);
  const fs::path beside = (here / fs::path(file).parent_path() / name).lexically_normal();
  const fs::path at_hand = (here / name).lexically_normal();
  return !is_there(beside) && is_there(at_hand) ? at_hand : beside;
}

}  // namespace

void map_names(Node& value, Names names, const std::function<std::string(const std::string&, const Origin&)>& change) {
  for (Node& item : value.items()) map_names(item, names, change);
  for (auto& [key, entry] : value.entries()) map_names(entry, names, change);
  if (!value.is_scalar() || value.is_missing_marker() || value.text().empty()) return;
  const auto one = [&](const std::string& name) { return change(name, value.origin); };
  const std::string text = names == Names::Paths ? changed_names(value.text(), one) : one(value.text());
  if (text == value.text()) return;
  Node replaced = Node::scalar(text, value.quoted());
  replaced.origin = value.origin;
  value = std::move(replaced);
}

void anchor_paths(Node& tree, const SchemaIndex& index) {
  for (const IndexEntry& entry : index.entries()) {
    if (entry.row == nullptr || entry.row->names == Names::Nothing) continue;
    if (Node* value = tree.find_path(entry.path)) map_names(*value, entry.row->names, anchored);
  }
}

}  // namespace redline::config
