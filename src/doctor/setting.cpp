#include "doctor/setting.h"

namespace redline::doctor {

std::vector<std::string> setting_overrides(const Setting& setting) {
  std::vector<std::string> words;
  for (const auto& [path, value] : setting) words.push_back(path + "=" + value);
  return words;
}

std::string setting_text(const Setting& setting) {
  std::string text;
  for (const std::string& word : setting_overrides(setting)) text += (text.empty() ? "" : ", ") + word;
  return text.empty() ? "reference" : text;
}

Setting combine(const Setting& base, const Setting& extra) {
  Setting both = base;
  for (const auto& [path, value] : extra) both[path] = value;
  return both;
}

Setting without(const Setting& base, const Setting& removed) {
  Setting rest = base;
  for (const auto& [path, value] : removed) rest.erase(path);
  return rest;
}

}  // namespace redline::doctor
