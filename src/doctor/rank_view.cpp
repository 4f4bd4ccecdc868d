#include "doctor/rank_view.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "core/strings.h"
#include "measure/reduce_timeline.h"

namespace redline::doctor {

namespace {

using measure::Phase;
using measure::StepRow;

constexpr double kNano = 1e-9;
constexpr int64_t kUnsteadySteps = 3;

double reduce_seconds(const StepRow& row) {
  return kNano * static_cast<double>(row.phase_ns[static_cast<size_t>(Phase::Reduce)]);
}
double own_seconds(const StepRow& row) { return kNano * static_cast<double>(row.wall_ns) - reduce_seconds(row); }

bool was_divided(const StepRow& row, const measure::RunRecord& record) {
  return (row.flags & measure::kStepUntimed) == 0 && row.step >= record.steps.front().step + kUnsteadySteps;
}

RankLine line_of(int rank, const measure::RunRecord& record) {
  RankLine line;
  line.rank = rank;
  for (const StepRow& row : record.steps) {
    if (!was_divided(row, record)) continue;
    ++line.steps;
    line.own_seconds += own_seconds(row);
    line.wait_seconds += reduce_seconds(row);
    for (size_t p = 0; p < row.phase_ns.size(); ++p)
      line.phase_seconds[p] += kNano * static_cast<double>(row.phase_ns[p]);
  }
  const auto steps = static_cast<double>(std::max<int64_t>(1, line.steps));
  line.own_seconds /= steps;
  line.wait_seconds /= steps;
  for (double& seconds : line.phase_seconds) seconds /= steps;
  return line;
}

struct Ceilings {
  double wall = 0, slowest = 0, mean = 0;
};

// Over the steps that all ranks have divided; else of the ranks' means.
Ceilings ceilings_of(std::span<const measure::RunRecord> ranks, const RankView& view) {
  std::map<int64_t, std::vector<const StepRow*>> by_step;
  for (const measure::RunRecord& record : ranks)
    for (const StepRow& row : record.steps)
      if (was_divided(row, record)) by_step[row.step].push_back(&row);
  Ceilings sums;
  for (const auto& [step, rows] : by_step) {
    if (rows.size() != ranks.size()) continue;
    double slowest = 0, mean = 0;
    for (const StepRow* row : rows) {
      slowest = std::max(slowest, own_seconds(*row));
      mean += own_seconds(*row) / static_cast<double>(rows.size());
    }
    sums.wall += kNano * static_cast<double>(rows[0]->wall_ns);
    sums.slowest += slowest;
    sums.mean += mean;
  }
  if (sums.wall > 0) return sums;
  sums.wall = view.step_seconds;
  for (const RankLine& line : view.ranks) {
    sums.slowest = std::max(sums.slowest, line.own_seconds);
    sums.mean += line.own_seconds / static_cast<double>(view.ranks.size());
  }
  return sums;
}

void add_flights(const measure::RunRecord& record, RankView& view) {
  double count = 0;
  for (const measure::Event& event : record.events)
    if (const auto timeline = measure::timeline_of(event)) {
      view.exposed_seconds += kNano * static_cast<double>(timeline->exposed_ns());
      view.overlapped_seconds += kNano * static_cast<double>(timeline->overlapped_ns());
      count += 1;
    }
  if (count == 0) return;
  view.exposed_seconds /= count;
  view.overlapped_seconds /= count;
}

template <class T>
T field(const measure::Event& event, const char* name, T otherwise) {
  const measure::FieldValue* value = event.find(name);
  const T* found = value != nullptr ? std::get_if<T>(value) : nullptr;
  return found != nullptr ? *found : otherwise;
}

void add_stragglers(const measure::RunRecord& record, RankView& view) {
  for (const measure::Event& event : record.events) {
    if (event.kind != "rank.straggler") continue;
    view.sentences.push_back(fmt::format(
        "Rank {} was a straggler around step {}: {} of its own work a step, the others {}; what was slower is {} ({} "
        "against {}){}.",
        field<int64_t>(event, "rank", -1), field<int64_t>(event, "step", 0),
        format_seconds(field(event, "own_seconds", 0.0)), format_seconds(field(event, "others_seconds", 0.0)),
        field<std::string>(event, "part", "?"), format_seconds(field(event, "part_seconds", 0.0)),
        format_seconds(field(event, "others_part_seconds", 0.0)),
        field(event, "starved", false) ? ", for no more processor time than theirs: something else had its processor"
                                       : ""));
  }
}

}  // namespace

std::optional<RankView> rank_view(std::span<const measure::RunRecord> ranks) {
  if (ranks.size() < 2) return std::nullopt;
  RankView view;
  for (size_t r = 0; r < ranks.size(); ++r) {
    if (ranks[r].steps.empty()) return std::nullopt;
    view.ranks.push_back(line_of(static_cast<int>(r), ranks[r]));
    if (view.ranks.back().steps == 0) return std::nullopt;
  }
  view.step_seconds = view.ranks[0].own_seconds + view.ranks[0].wait_seconds;
  add_flights(ranks[0], view);
  const Ceilings sums = ceilings_of(ranks, view);
  if (!(sums.slowest > 0) || !(sums.mean > 0)) return std::nullopt;
  view.free_network_gain = std::max(0.0, sums.wall / sums.slowest - 1);
  view.equal_ranks_gain = std::max(0.0, sums.slowest / sums.mean - 1);
  view.sentences.push_back(fmt::format(
      "A free network gives at most {:+.1f} %: of a step of {}, {} pass while gradients travel beside backward and {} "
      "while backward waits for them.",
      100 * view.free_network_gain, format_seconds(view.step_seconds), format_seconds(view.overlapped_seconds),
      format_seconds(view.exposed_seconds)));
  view.sentences.push_back(fmt::format("Ranks that are all as fast as their mean give at most {:+.1f} % more.",
                                       100 * view.equal_ranks_gain));
  add_stragglers(ranks[0], view);
  return view;
}

}  // namespace redline::doctor
