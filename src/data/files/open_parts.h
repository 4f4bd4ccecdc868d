// From the names in a data set's options to parts of one source.
#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "data/kind.h"
#include "data/workers/concat_source.h"

namespace redline::data {

using NameLists = std::vector<std::vector<std::string>>;

inline std::vector<std::filesystem::path> as_paths(const std::vector<std::string>& names) {
  return {names.begin(), names.end()};
}

// One part per inner list; is_concat makes every name of a plain list a part.
inline NameLists parts_of(const config::Node& node, const char* key, bool concat) {
  NameLists lists = name_lists(node, key);
  if (!concat || lists.size() != 1) return lists;
  NameLists each;
  for (auto& name : lists[0]) each.push_back({std::move(name)});
  return each;
}

inline OpenedData join_parts(std::vector<std::shared_ptr<Source>> parts, bool tarred = false) {
  OpenedData data;
  data.tarred = tarred;
  if (parts.size() == 1) {
    data.source = std::move(parts[0]);
    return data;
  }
  auto all = std::make_shared<ConcatSource>(std::move(parts));
  data.part_sizes = all->part_sizes();
  data.source = std::move(all);
  return data;
}

bool all_tars(const NameLists& lists);

}  // namespace redline::data
