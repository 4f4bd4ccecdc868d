#include "report/parts/config_keys.h"

#include <map>
#include <set>

#include "config/job.h"
#include "config/yaml_writer.h"
#include "core/error.h"
#include "core/strings.h"

namespace redline::report {

namespace {

using FlatConfig = std::map<std::string, std::string>;

void flatten(const config::Node& node, const std::string& path, FlatConfig& out) {
  if (node.is_map() && !node.entries().empty()) {
    for (const auto& [key, value] : node.entries()) flatten(value, path.empty() ? key : path + "." + key, out);
    return;
  }
  out[path] = config::write_yaml_flow(node);
}

FlatConfig flat_of(const std::string& yaml) {
  FlatConfig out;
  try {
    flatten(config::read_yaml_text(yaml, "config.resolved.yaml"), "", out);
  } catch (const Error&) {
    out.clear();
  }
  return out;
}

bool says_where(const std::string& key) {
  return key == "exp_manager.run_dir" || key == "exp_manager.exp_dir" || ends_with(key, ".cache_dir");
}

}  // namespace

std::vector<DifferentKey> different_keys(const std::vector<std::string>& configs) {
  std::vector<FlatConfig> flat;
  std::set<std::string> keys;
  for (const std::string& config : configs) {
    flat.push_back(flat_of(config));
    for (const auto& [key, value] : flat.back()) keys.insert(key);
  }
  std::vector<DifferentKey> different;
  for (const std::string& key : keys) {
    if (says_where(key)) continue;
    DifferentKey line{key, {}};
    std::set<std::string> seen;
    for (const FlatConfig& one : flat) {
      const auto found = one.find(key);
      line.values.push_back(found == one.end() ? "-" : found->second);
      seen.insert(line.values.back());
    }
    if (seen.size() > 1) different.push_back(std::move(line));
  }
  return different;
}

// A dump has one value a line with its origin as a comment: "  max_steps: 30  # flag trainer.max_steps=30".
std::vector<std::pair<std::string, std::string>> keys_that_were_set(const std::string& config_yaml) {
  std::vector<std::pair<std::string, std::string>> set;
  std::vector<std::pair<size_t, std::string>> open;  // indent and key
  for (const std::string& line : split(config_yaml, '\n')) {
    const size_t indent = line.find_first_not_of(' ');
    const size_t colon = line.find(':');
    if (indent == std::string::npos || colon == std::string::npos || line[indent] == '-' || line[indent] == '#')
      continue;
    while (!open.empty() && open.back().first >= indent) open.pop_back();
    const std::string key = line.substr(indent, colon - indent);
    const size_t comment = line.find("  # ");
    const std::string value =
        trim(line.substr(colon + 1, comment == std::string::npos ? comment : comment - colon - 1));
    if (value.empty() && comment == std::string::npos) {
      open.emplace_back(indent, key);
      continue;
    }
    const std::string origin = comment == std::string::npos ? "" : line.substr(comment + 4);
    if (origin.empty() || starts_with(origin, "default") || starts_with(origin, "resolved")) continue;
    std::string path;
    for (const auto& [depth, word] : open) path += word + ".";
    set.emplace_back(path + key + ": " + value, origin);
  }
  return set;
}

}  // namespace redline::report
