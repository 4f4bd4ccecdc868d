// Who listens to a loop: the run record, TensorBoard, CSV and the progress line in a real run; a collector in a trial.
// The loop itself writes nothing.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "measure/run_record.h"

namespace redline::train {

// What a log line needs beside the step's own row.
struct LogValues {
  int64_t step = 0;
  std::map<std::string, double> metrics;  // names of the metric table
};

class LoopObserver {
 public:
  virtual ~LoopObserver() = default;
  virtual void step(const measure::StepRow& row) { static_cast<void>(row); }  // every step, after it ended
  // Ids of a committed step's samples, in order; only when wanted.
  virtual bool wants_samples() const { return false; }
  virtual void samples(int64_t step, int64_t epoch, const std::vector<int64_t>& ids) {
    static_cast<void>(step);
    static_cast<void>(epoch);
    static_cast<void>(ids);
  }
  virtual void before_save() {}  // what was said so far must outlive a kill after the save
  virtual void log(const LogValues& values) { static_cast<void>(values); }  // inside the Log phase
  virtual void validated(const LogValues& values) { static_cast<void>(values); }
  virtual void monitored(const LogValues& values, const std::vector<std::string>& found,
                         const std::vector<std::string>& plots) {
    static_cast<void>(values);
    static_cast<void>(found);
    static_cast<void>(plots);
  }
  virtual void event(const std::string& kind, const measure::FieldList& fields) {
    static_cast<void>(kind);
    static_cast<void>(fields);
  }
};

}  // namespace redline::train
