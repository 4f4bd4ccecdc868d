#include "doctor/setting.h"

#include <algorithm>
#include <cmath>

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

double Candidate::predicted_log() const { return std::log(std::max(0.1, 1 + predicted_gain)); }

double Candidate::prediction_error() const {
  if (deviation > 0) return deviation;
  return unpredicted ? kUnforeseen : usual_deviation(predicted_log());
}

measure::Interval Candidate::predicted_interval() const {
  const double half = 1.96 * prediction_error();
  const auto gain = [&](double log) { return std::min(std::max(ceiling, predicted_gain), std::expm1(log)); };
  return {gain(predicted_log() - half), gain(predicted_log() + half)};
}

double usual_deviation(double predicted_log) { return 0.02 + 0.3 * std::abs(predicted_log); }

}  // namespace redline::doctor
