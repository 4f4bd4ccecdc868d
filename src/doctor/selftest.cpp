#include "doctor/selftest.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "core/philox.h"
#include "measure/statistics.h"

namespace redline::doctor {

namespace {
constexpr double kShares[] = {0.05, 0.10, 0.20, 0.50};
constexpr int kControls = 16, kDoubles = 10;

template <class T>
void shuffle_plan(std::vector<T>& items, uint64_t seed) {
  KeyedStream draw(seed, 0, 0, 0x73656c66);
  for (size_t i = items.size(); i > 1; --i)
    std::swap(items[i - 1], items[static_cast<size_t>(draw.uniform_int(0, static_cast<int64_t>(i) - 1))]);
}
}  // namespace

std::string Injection::text() const {
  if (parts.empty()) return "control";
  std::string names;
  for (const Part& part : parts) names += (names.empty() ? "" : " + ") + part.name();
  return fmt::format("{} {:.0f} % {}", names, 100 * share,
                     kind == measure::faults::DelayKind::Sleep ? "sleep" : "spin");
}

std::vector<Injection> selftest_plan(const std::vector<Part>& available, uint64_t seed, int repeats) {
  using measure::faults::DelayKind;
  std::vector<Injection> plan;
  for (int r = 0; r < repeats; ++r) {
    for (const Part& part : available)
      for (double share : kShares)
        for (DelayKind kind : {DelayKind::Sleep, DelayKind::Spin}) plan.push_back({{part}, share, kind});
    for (int c = 0; c < kControls; ++c) plan.push_back({});
    KeyedStream draw(seed, static_cast<uint64_t>(r), 0, 0x646f75);
    for (int d = 0; d < kDoubles && available.size() >= 2; ++d) {
      const auto first = static_cast<size_t>(draw.uniform_int(0, static_cast<int64_t>(available.size()) - 1));
      auto second = static_cast<size_t>(draw.uniform_int(0, static_cast<int64_t>(available.size()) - 2));
      second += second >= first;
      plan.push_back({{available[first], available[second]},
                      d % 2 == 0 ? 0.2 : 0.5,
                      d % 4 < 2 ? DelayKind::Sleep : DelayKind::Spin});
    }
  }
  shuffle_plan(plan, seed);
  return plan;
}

std::string Answer::named_text() const {
  std::string text;
  for (const Part& part : named) text += (text.empty() ? "" : ", ") + part.name();
  return text.empty() ? "nothing" : text;
}

bool Answer::right() const {
  const auto among = [](const Part& part, const std::vector<Part>& list) {
    return std::find(list.begin(), list.end(), part) != list.end();
  };
  if (injection.parts.empty()) return named.empty();
  if (named.empty() || !among(named[0], injection.parts)) return false;
  return std::all_of(injection.parts.begin(), injection.parts.end(),
                     [&](const Part& part) { return among(part, named); });
}

SelftestResult score_selftest(const std::vector<Answer>& answers) {
  SelftestResult result;
  std::vector<double> errors;
  for (const Answer& answer : answers) {
    const std::string said = answer.named.empty() ? "nothing" : answer.named[0].name();
    if (answer.injection.parts.empty()) {
      ++result.controls;
      result.false_alarms += !answer.right();
      ++result.matrix["control"][said];
      continue;
    }
    ++result.injections;
    result.right += answer.right();
    errors.push_back(std::abs(answer.predicted_gain - answer.measured_gain));
    std::string injected;
    for (const Part& part : answer.injection.parts) injected += (injected.empty() ? "" : "+") + part.name();
    if (answer.injection.parts.size() == 1)
      ++result.matrix[injected][said];
    else
      ++result.matrix["double fault"][answer.right() ? "both" : said];
  }
  if (result.injections > 0) result.accuracy = static_cast<double>(result.right) / result.injections;
  if (result.controls > 0) result.false_alarm_rate = static_cast<double>(result.false_alarms) / result.controls;
  if (!errors.empty()) result.median_gain_error = measure::median(errors);
  return result;
}

}  // namespace redline::doctor
