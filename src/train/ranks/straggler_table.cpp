#include "train/ranks/straggler_table.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "core/strings.h"
#include "measure/statistics.h"

namespace redline::train {

double OwnTime::sum() const { return std::accumulate(parts.begin(), parts.end(), 0.0); }

std::string Straggler::sentence() const {
  std::string text = fmt::format(
      "Rank {} is a straggler: its own work takes {} a step, that of the others {}. What is slower is {} ({} against "
      "{}).",
      rank, format_seconds(own_seconds), format_seconds(others_seconds), part, format_seconds(part_seconds),
      format_seconds(others_part_seconds));
  if (part == "wait")
    text += " It waits for its data: its loader, disk or samples are slower.";
  else if (starved)
    text += " It uses no more processor time than they do: something else on its machine has its processor.";
  return text + fmt::format(" Without it steps could be up to {:.0f} % faster.", 100 * gain());
}

measure::FieldList Straggler::fields(int64_t step) const {
  return {{"step", step},
          {"rank", int64_t{rank}},
          {"own_seconds", own_seconds},
          {"others_seconds", others_seconds},
          {"part", part},
          {"part_seconds", part_seconds},
          {"others_part_seconds", others_part_seconds},
          {"starved", starved}};
}

void StragglerTable::add(int rank, const OwnTime& own) {
  const auto r = static_cast<size_t>(rank);
  for (size_t i = 0; i < own.parts.size(); ++i) sums_[r].parts[i] += own.parts[i];
  sums_[r].cpu += own.cpu;
  ++counts_[r];
}

std::optional<Straggler> StragglerTable::slowest() const {
  if (*std::min_element(counts_.begin(), counts_.end()) < kLeastTimed) return std::nullopt;
  std::vector<OwnTime> means = sums_;
  for (size_t r = 0; r < means.size(); ++r) {
    for (double& part : means[r].parts) part /= counts_[r];
    means[r].cpu /= counts_[r];
  }
  const auto slow =
      static_cast<size_t>(std::max_element(means.begin(), means.end(),
                                           [](const OwnTime& a, const OwnTime& b) { return a.sum() < b.sum(); }) -
                          means.begin());
  const auto of_others = [&](const auto& value) {
    std::vector<double> values;
    for (size_t r = 0; r < means.size(); ++r)
      if (r != slow) values.push_back(value(means[r]));
    return measure::median(values);
  };
  Straggler found;
  found.rank = static_cast<int>(slow);
  found.own_seconds = means[slow].sum();
  found.others_seconds = of_others([](const OwnTime& one) { return one.sum(); });
  if (found.own_seconds < kSlower * found.others_seconds || found.own_seconds < found.others_seconds + kLeastSeconds)
    return std::nullopt;
  double most = 0;
  for (size_t i = 0; i < kOwnParts.size(); ++i) {
    const double theirs = of_others([i](const OwnTime& one) { return one.parts[i]; });
    const double more = means[slow].parts[i] - theirs;
    if (more <= most) continue;
    most = more;
    found.part = kOwnParts[i];
    found.part_seconds = means[slow].parts[i];
    found.others_part_seconds = theirs;
  }
  const double cpu = of_others([](const OwnTime& one) { return one.cpu; });
  found.starved = found.part != "wait" && cpu > 0 && means[slow].cpu < cpu + 0.3 * most;
  return found;
}

std::optional<Straggler> StragglerTable::judge() {
  if (sums_.size() < 2 || ++steps_ < kWindowSteps) return std::nullopt;
  const std::optional<Straggler> slow = slowest();
  // Too few steps were divided into phases: the window goes on.
  if (!slow && *std::min_element(counts_.begin(), counts_.end()) < kLeastTimed) return std::nullopt;
  steps_ = 0;
  sums_.assign(sums_.size(), {});
  counts_.assign(counts_.size(), 0);
  const int before = suspect_;
  suspect_ = slow ? slow->rank : -1;
  if (!slow) named_ = -1;
  if (!slow || before != slow->rank || named_ == slow->rank) return std::nullopt;
  named_ = slow->rank;
  return slow;
}

}  // namespace redline::train
