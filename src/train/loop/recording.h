// What a loop says of itself: a row for each step, a line every so often, and what it notices on the way: steps that
// have become slower, memory that is no tensor's, the share of the time that runs in the low precision.
#pragma once

#include <optional>
#include <vector>

#include "measure/reduce_timeline.h"
#include "measure/step_clock.h"
#include "train/guards/drift_watch.h"
#include "train/guards/memory_watch.h"
#include "train/guards/operator_watch.h"
#include "train/loop/surroundings_watch.h"
#include "train/loop/training_state.h"

namespace redline::train {

class Recording {
 public:
  Recording(const LoopParts& parts, const LoopSettings& settings, TrainingState& state, measure::StepClock& clock);

  // Rates count from here; a run does it once, before its first step.
  void start();
  // Times the operators of the one step that is to say what share of them runs in the low precision.
  void begin_step();
  void end_compute(Precision precision);
  void log(const StepVerdict& step, const CadencePosition& position);
  // How the step's gradients went over the ranks; before row().
  void exchanged(std::optional<measure::ReduceTimeline> timeline);
  // Ends the step's clock.
  void row(const StepVerdict& step);

  double step_seconds() const { return step_seconds_; }  // running mean

 private:
  void check_drift(const measure::StepRow& row);
  void check_memory(const measure::StepRow& row);
  void write_timeline(const measure::StepRow& row);

  const LoopParts& parts_;
  const LoopSettings& settings_;
  TrainingState& state_;
  measure::StepClock& clock_;
  DriftWatch drift_;
  std::optional<MemoryWatch> memory_watch_;
  SurroundingsWatch surroundings_;
  std::optional<OperatorTimer> timer_;
  int64_t timed_step_ = -1;
  uint32_t next_flags_ = 0;
  int64_t rss_bytes_ = 0, rss_read_ns_ = 0;
  double step_seconds_ = 0;
  measure::StageTimes stages_seen_{};  // by the rows written so far
  std::optional<measure::ReduceTimeline> timeline_;
  int64_t timelines_ = 0;
  int64_t exchanged_steps_ = 0, exposed_ns_ = 0, overlapped_ns_ = 0;  // since the last log line
};

}  // namespace redline::train
