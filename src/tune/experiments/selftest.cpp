// The runs of the stopwatch's test. Blocks with a fault and plain ones take turns over the same samples: state and
// position are loaded before every block, so rows can be paired step by step, and the best of several passes is
// compared. Where the answer is not clear the doctor asks for another pair of blocks, as it would in earnest; it never
// sees what was injected.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "core/log.h"
#include "core/time.h"
#include "measure/faults.h"
#include "tune/experiments.h"

namespace redline::tune {

namespace {

using doctor::Part;
using measure::StepRow;
namespace faults = measure::faults;
using Rows = std::vector<StepRow>;

// A burst of other work on the machine outlasts a pass, seldom three.
constexpr size_t kLeastPasses = 3, kMostPasses = 7;

void add_fault(const Part& part, double seconds, faults::DelayKind kind) {
  if (part.is_stage)
    faults::add_delay(static_cast<measure::Stage>(part.index), seconds, kind);
  else
    faults::add_delay(static_cast<measure::Phase>(part.index), seconds, kind);
}

struct FaultGuard {
  ~FaultGuard() { faults::clear(); }
};

double part_seconds(const Rows& rows, const Part& part) {
  double seconds = 0;
  for (const StepRow& row : rows)
    seconds += static_cast<double>(part.is_stage ? row.stage_ns[part.index] : row.phase_ns[part.index]) * 1e-9;
  return seconds / static_cast<double>(rows.size());
}

double part_frequency(const Rows& rows, const Part& part) {
  const auto count = std::count_if(rows.begin(), rows.end(), [&](const StepRow& row) {
    return (part.is_stage ? row.stage_ns[part.index] : row.phase_ns[part.index]) > 0;
  });
  return static_cast<double>(count) / static_cast<double>(rows.size());
}

double wall_seconds(const Rows& rows) {
  double seconds = 0;
  for (const StepRow& row : rows) seconds += static_cast<double>(row.wall_ns) * 1e-9;
  return seconds / static_cast<double>(rows.size());
}

struct Fault {
  Part part;
  double seconds;  // per entry of its scope
};

class Bench {
 public:
  Bench(train::Trial& trial, const train::CheckpointState& start, int64_t steps)
      : trial_(trial), start_(start), steps_(steps) {}

  Rows block(const std::vector<Fault>& delays, faults::DelayKind kind) {
    trial_.load(start_);
    FaultGuard guard;
    for (const Fault& fault : delays) add_fault(fault.part, fault.seconds, kind);
    Rows rows = trial_.run(steps_ + kDropped).rows;
    rows.erase(rows.begin(), rows.begin() + std::min<ptrdiff_t>(kDropped, std::ssize(rows)));
    return rows;
  }
  Rows plain() { return block({}, faults::DelayKind::Spin); }

 private:
  static constexpr int64_t kDropped = 2;  // the loader starts anew
  train::Trial& trial_;
  const train::CheckpointState& start_;
  int64_t steps_;
};

bool can_be_slowed(size_t phase) {
  const auto p = static_cast<measure::Phase>(phase);
  return p != measure::Phase::Wait && p != measure::Phase::Other && p != measure::Phase::Reduce;
}

struct Target {
  Part part;
  double entries = 0;  // of its scope per step
};

// How often each scope is entered per step: from what a known delay adds to it.
std::vector<Target> find_targets(Bench& bench, const Rows& base) {
  const double probe = 0.05 * wall_seconds(base);
  std::vector<Part> parts;
  for (size_t p = 0; p < measure::kNumPhases; ++p)
    if (can_be_slowed(p)) parts.push_back({false, p});
  for (size_t s = 0; s < measure::kNumStages; ++s) parts.push_back({true, s});
  std::vector<Target> targets;
  for (const Part& part : parts) {
    const double frequency = part_frequency(base, part);
    if (frequency == 0) continue;
    const Rows slowed = bench.block({{part, probe}}, faults::DelayKind::Sleep);
    double entries = (part_seconds(slowed, part) - part_seconds(base, part)) / probe;
    if (!part.is_stage) entries = std::max(1.0, std::round(entries / frequency)) * frequency;
    if (entries < 0.05) continue;  // its scope is not entered
    targets.push_back({part, entries});
  }
  return targets;
}

// Plain and slowed passes over the same steps, in turns; what counts is the best of each.
class Passes {
 public:
  void add(Rows slowed, Rows plain) {
    slowed_.push_back(std::move(slowed));
    plain_.push_back(std::move(plain));
  }
  size_t size() const { return slowed_.size(); }
  Rows plain() const { return doctor::best_rows(plain_); }
  Rows slowed() const { return doctor::best_rows(slowed_); }

 private:
  std::vector<Rows> slowed_, plain_;
};

}  // namespace

doctor::SelftestRun Experiments::selftest(int64_t block_steps) {
  const int64_t begin = now_ns();
  Bench bench(*trial_, start_, block_steps);
  bench.plain();
  const Rows base = bench.plain();
  const double step_seconds = wall_seconds(base);
  const std::vector<Target> targets = find_targets(bench, base);
  std::vector<Part> parts;
  for (const Target& target : targets) parts.push_back(target.part);
  const auto plan = doctor::selftest_plan(parts, 1);
  log_info(fmt::format("{} injections into {} parts, steps of {:.1f} ms ...", plan.size(), parts.size(),
                       1e3 * step_seconds));
  std::vector<doctor::Answer> answers;
  for (const doctor::Injection& injection : plan) {
    std::vector<Fault> faults;
    for (const Part& part : injection.parts) {
      const auto at = static_cast<size_t>(std::find(parts.begin(), parts.end(), part) - parts.begin());
      faults.push_back({part, injection.share * step_seconds / targets[at].entries});
    }
    Passes passes;
    doctor::Change change;
    do {
      Rows slowed = bench.block(faults, injection.kind);
      passes.add(std::move(slowed), bench.plain());
      change = doctor::find_change(passes.plain(), passes.slowed());
    } while (passes.size() < kLeastPasses || (doctor::is_uncertain(change) && passes.size() < kMostPasses));
    const double gain = wall_seconds(passes.slowed()) / wall_seconds(passes.plain()) - 1.0;
    doctor::Answer answer{injection, {}, change.predicted_gain, gain};
    for (const doctor::PartChange& moved : change.moved) answer.named.push_back(moved.part);
    answers.push_back(std::move(answer));
    log_debug(fmt::format("{}: {} ({}), gain {:.3f} predicted, {:.3f} measured, {} passes", injection.text(),
                          answers.back().named_text(), answers.back().right() ? "right" : "WRONG",
                          answers.back().predicted_gain, answers.back().measured_gain, passes.size()));
  }
  return {std::move(answers), step_seconds, seconds_between(begin, now_ns())};
}

}  // namespace redline::tune
