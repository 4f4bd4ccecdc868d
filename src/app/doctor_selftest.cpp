// The self-test's runs. Each injection is measured against the same job without it, on the same samples, A B B A: state
// and position are loaded before every block, so rows can be paired step by step.
#include <fmt/format.h>

#include <algorithm>

#include "app/doctor_runs.h"
#include "core/log.h"
#include "measure/faults.h"

namespace redline::app {

namespace {

using doctor::Part;
using measure::StepRow;
namespace faults = measure::faults;

void add_fault(const Part& part, double seconds, faults::DelayKind kind) {
  if (part.is_stage)
    faults::add_delay(static_cast<measure::Stage>(part.index), seconds, kind);
  else
    faults::add_delay(static_cast<measure::Phase>(part.index), seconds, kind);
}

struct FaultGuard {
  ~FaultGuard() { faults::clear(); }
};

// Rows of two blocks over the same samples, averaged step by step.
std::vector<StepRow> mean_rows(const std::vector<StepRow>& a, const std::vector<StepRow>& b) {
  std::vector<StepRow> rows = a;
  for (size_t i = 0; i < std::min(a.size(), b.size()); ++i) {
    rows[i].wall_ns = (a[i].wall_ns + b[i].wall_ns) / 2;
    for (size_t p = 0; p < measure::kNumPhases; ++p) rows[i].phase_ns[p] = (a[i].phase_ns[p] + b[i].phase_ns[p]) / 2;
    for (size_t s = 0; s < measure::kNumStages; ++s) rows[i].stage_ns[s] = (a[i].stage_ns[s] + b[i].stage_ns[s]) / 2;
  }
  return rows;
}

double part_seconds(const std::vector<StepRow>& rows, const Part& part) {
  double seconds = 0;
  for (const StepRow& row : rows)
    seconds += static_cast<double>(part.is_stage ? row.stage_ns[part.index] : row.phase_ns[part.index]) * 1e-9;
  return seconds / static_cast<double>(rows.size());
}

double wall_seconds(const std::vector<StepRow>& rows) {
  double seconds = 0;
  for (const StepRow& row : rows) seconds += static_cast<double>(row.wall_ns) * 1e-9;
  return seconds / static_cast<double>(rows.size());
}

class Bench {
 public:
  Bench(train::Trial& trial, int64_t steps) : trial_(trial), steps_(steps), start_(trial.state()) {}

  std::vector<StepRow> block(const std::vector<std::pair<Part, double>>& delays, faults::DelayKind kind) {
    trial_.load(start_);
    FaultGuard guard;
    for (const auto& [part, seconds] : delays) add_fault(part, seconds, kind);
    return trial_.run(steps_).rows;
  }
  std::vector<StepRow> plain() { return block({}, faults::DelayKind::Spin); }

  // How often a scope of the part is entered per step: from what a known delay adds.
  double hits_per_step(const Part& part, double base_seconds) {
    constexpr double kProbe = 300e-6;
    const double grown = part_seconds(block({{part, kProbe}}, faults::DelayKind::Spin), part) - base_seconds;
    return grown / kProbe;
  }

 private:
  train::Trial& trial_;
  int64_t steps_;
  train::CheckpointState start_;
};

std::vector<Part> parts_of(const std::vector<StepRow>& rows) {
  std::vector<Part> parts;
  for (size_t p = 0; p < measure::kNumPhases; ++p) {
    const auto phase = static_cast<measure::Phase>(p);
    if (phase == measure::Phase::Wait || phase == measure::Phase::Other || phase == measure::Phase::Reduce) continue;
    if (part_seconds(rows, {false, p}) > 0) parts.push_back({false, p});
  }
  for (size_t s = 0; s < measure::kNumStages; ++s)
    if (part_seconds(rows, {true, s}) > 0) parts.push_back({true, s});
  return parts;
}

}  // namespace

doctor::SelftestResult DoctorRuns::selftest(int64_t steps) {
  train::Trial& job = trial(doctor::ExperimentKind::AsIs);
  Bench bench(job, std::clamp<int64_t>(steps, 10, 40));
  const std::vector<StepRow> base = bench.plain();
  const double step_seconds = wall_seconds(base);
  std::vector<Part> parts;
  std::vector<double> hits;
  for (const Part& part : parts_of(base)) {
    const double count = bench.hits_per_step(part, part_seconds(base, part));
    if (count < 0.05) continue;  // its scope was not entered: nothing can be injected there
    parts.push_back(part);
    hits.push_back(count);
  }
  const auto plan = doctor::selftest_plan(parts, 1);
  log_info(fmt::format("{} injections into {} parts, steps of {:.1f} ms ...", plan.size(), parts.size(),
                       1e3 * step_seconds));
  std::vector<doctor::Answer> answers;
  for (const doctor::Injection& injection : plan) {
    std::vector<std::pair<Part, double>> delays;
    for (const Part& part : injection.parts) {
      const auto at = static_cast<size_t>(std::find(parts.begin(), parts.end(), part) - parts.begin());
      delays.emplace_back(part, injection.share * step_seconds / hits[at]);
    }
    const auto a1 = bench.plain(), b1 = bench.block(delays, injection.kind), b2 = bench.block(delays, injection.kind),
               a2 = bench.plain();
    const doctor::Change change = doctor::find_change(mean_rows(a1, a2), mean_rows(b1, b2));
    doctor::Answer answer{injection, {}, change.predicted_gain, change.step_seconds / change.base_step_seconds - 1.0};
    for (const doctor::PartChange& moved : change.moved) answer.named.push_back(moved.part);
    log_debug(fmt::format("{}: {} ({})", injection.text(), answer.named.empty() ? "nothing" : answer.named[0].name(),
                          answer.right() ? "right" : "wrong"));
    answers.push_back(std::move(answer));
  }
  return doctor::score_selftest(answers);
}

}  // namespace redline::app
