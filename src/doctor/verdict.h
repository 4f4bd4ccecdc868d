// What limits a run. Each rule turns one kind of limit into the speed that lifting it would gain, and into how much of
// that is sure; the largest gain that is sure enough names the verdict, so thresholds are about what matters to the
// user (gain), not about shares. No clock, no thread: tested by tables.
#pragma once

#include <algorithm>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/machine_facts.h"
#include "doctor/candidates.h"
#include "doctor/ceilings.h"
#include "doctor/rules/guide_traps.h"

namespace redline::doctor {

enum class Limit {
  Data,
  Compute,
  Memory,
  Cadence,
  SmallBatch,
  Padding,
  Oversubscribed,
  Contended,  // what is around the job, not in it, from here
  Throttled,
  Swapping,
  Pinned,
  Stopped,
  ClockedDown,
  SlowDisk,
  Balanced,
  Unknown  // "I cannot tell"
};
const char* limit_name(Limit limit);  // "data-bound", "compute-bound", ...

struct LimitScore {
  Limit limit;
  double gain = 0;       // speed to be had by lifting it
  std::string detail;    // which: "decode", "read", "transform", "worker count", "validate", ...
  std::string evidence;  // one sentence in numbers
  std::string cure{};    // what to do about it, in sentences; empty: the suggestions are what to do
  // Lower end of the gain's interval (95 %); none: the gain itself, a count of the kernel's.
  std::optional<double> sure{};

  double at_least() const { return std::min(gain, sure.value_or(gain)); }
  bool worth_naming() const;
};

struct Diagnosis {
  Limit limit = Limit::Unknown;
  std::string detail;
  double confidence = 0;           // 0..1: how far the first is ahead of the second, and how noisy the steps are
  std::string sentence;            // the answer in one sentence
  std::string cure;                // what to do, where no switch of the recipe is the answer
  std::string unseen;              // what was not to be seen on this machine; empty: all that is looked for
  std::vector<LimitScore> scores;  // all rules: those worth naming, then the rest; largest gain first
  std::vector<Ceiling> ceilings;
  std::vector<Candidate> suggestions;  // largest gain first
  std::vector<Trap> traps;
};

// `plan`: what a setting makes of the job's plan; none: assumed_plan.
Diagnosis diagnose(const JobView& job, const Observation& seen, std::vector<Ceiling> ceilings,
                   const MachineFacts& machine, const PlanShapeOf& plan = {});

}  // namespace redline::doctor
