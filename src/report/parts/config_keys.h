// Which settings of several runs differ, key by key.
#pragma once

#include <string>
#include <vector>

namespace redline::report {

struct DifferentKey {
  std::string key;
  std::vector<std::string> values;  // one per config; "-" where it has none
};

// Configs as records keep them; one that cannot be read counts as empty. Folders that only say where a run is written
// are left out.
std::vector<DifferentKey> different_keys(const std::vector<std::string>& configs);

// Keys that were set by somebody, "key: value", with the origin: what is not default and not resolved.
std::vector<std::pair<std::string, std::string>> keys_that_were_set(const std::string& config_yaml);

}  // namespace redline::report
