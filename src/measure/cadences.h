// One figure for each thing a run does every so many steps: what an occurrence costs, or how many a step holds.
#pragma once

namespace redline::measure {

struct PerCadence {
  double log = 0, monitor = 0, validate = 0, checkpoint = 0;
};

// Seconds of a step, from the seconds of an occurrence and how many a step holds.
inline double cadence_seconds(const PerCadence& seconds, const PerCadence& per_step) {
  return seconds.log * per_step.log + seconds.monitor * per_step.monitor + seconds.validate * per_step.validate +
         seconds.checkpoint * per_step.checkpoint;
}

}  // namespace redline::measure
