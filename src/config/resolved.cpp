// What can be asked of a config once it is read: values, dump, hash.
#include <algorithm>

#include "config/job.h"
#include "config/request/messages.h"
#include "config/request/paths.h"
#include "config/yaml_writer.h"
#include "core/check.h"
#include "core/hash.h"
#include "core/strings.h"

namespace redline::config {

namespace {

Node hashed_value(const ResolvedValue& value, FilesBy files) {
  Node copy = value.value;
  if (value.row == nullptr || value.row->names == Names::Nothing) return copy;
  const std::filesystem::path here = std::filesystem::current_path();
  map_names(copy, value.row->names, [&](const std::string& name, const Origin&) {
    const std::filesystem::path path(name);
    if (files == FilesBy::Name)
      return path.filename().empty() ? path.parent_path().filename().string() : path.filename().string();
    return path.is_absolute() ? path.lexically_proximate(here).string() : name;
  });
  return copy;
}

}  // namespace

const ResolvedValue* Resolved::find(std::string_view path) const {
  for (const ResolvedValue& value : values_) {
    if (value.path == path) return &value;
  }
  return nullptr;
}

bool Resolved::has_section(std::string_view path) const {
  return std::find(present_.begin(), present_.end(), path) != present_.end();
}

const Node& Resolved::require(std::string_view path) const {
  const ResolvedValue* found = find(path);
  REDLINE_CHECK(found != nullptr,
                "only declared options of sections that are there can be required: " + std::string(path));
  const Node& value = found->value;
  if (value.is_missing_marker() || value.is_null() || (value.is_scalar() && value.text().empty())) {
    fail_at(found->origin, std::string(path) + " must be given here; add it to the recipe or write " +
                               std::string(path) + "=VALUE on the command line.");
  }
  return value;
}

std::vector<std::string> Resolved::still_auto() const {
  std::vector<std::string> paths;
  for (const ResolvedValue& value : values_) {
    const bool may_be = value.row != nullptr && value.row->type.find("auto|") != std::string::npos;
    if (may_be && value.value.is_scalar() && !value.value.quoted() && value.value.text() == "auto")
      paths.push_back(value.path);
  }
  return paths;
}

// Sections that are present are there even when they have no value of their own, so that they are read back as present.
Node Resolved::tree() const {
  Node root = Node::map();
  for (const std::string& path : present_) {
    if (!path.empty() && root.find_path(path) == nullptr) root.set_path(path, Node::map());
  }
  Node* parent = nullptr;  // of the value before, valid as long as values follow each other in one map
  std::string_view parent_path;
  for (const ResolvedValue& value : values_) {
    const size_t dot = value.path.rfind('.');
    const std::string_view own = dot == std::string::npos ? "" : std::string_view(value.path).substr(0, dot);
    if (parent == nullptr || own != parent_path) parent = own.empty() ? &root : root.find_path(own);
    parent_path = own;
    const std::string key = value.path.substr(dot == std::string::npos ? 0 : dot + 1);
    Node* slot = parent->find(key);
    if (slot != nullptr && slot->is_map()) continue;  // a word of one room where another has a section that is there
    if (slot == nullptr) slot = &parent->entries().emplace_back(key, Node()).second;
    *slot = value.value;
    slot->origin = value.origin;
  }
  return root;
}

std::string Resolved::dump_yaml(bool with_origins) const { return write_yaml(tree(), with_origins); }
std::string Resolved::dump_json() const { return write_json(tree()); }

uint64_t Resolved::hash(const std::vector<std::string>& ignored_prefixes, FilesBy files) const {
  std::vector<std::string> lines;
  for (const ResolvedValue& value : values_) {
    const bool left_out = std::any_of(ignored_prefixes.begin(), ignored_prefixes.end(),
                                      [&](const std::string& prefix) { return starts_with(value.path, prefix); });
    if (!left_out && !(value.row != nullptr && value.row->same_run))
      lines.push_back(value.path + "=" + write_yaml_flow(hashed_value(value, files)) + "\n");
  }
  std::sort(lines.begin(), lines.end());
  return hash64(join(lines, ""));
}

}  // namespace redline::config
