// A loop for trials: what a run never does. Parts left out, steps without a model or with a loader that costs nothing,
// one occurrence of a cadence by itself, and moving about in the data.
#pragma once

#include "train/loop/trainer.h"

namespace redline::train {

class TrialLoop : public Trainer {
 public:
  using Trainer::Trainer;

  // Cadences left out from now on, for trials that compare with and without.
  struct LeftOut {
    bool log = false, validate = false, monitor = false, save = false;
  };
  void leave_out(const LeftOut& parts);
  // Fetches the batches of the next steps now (as far as this epoch goes), so that those steps wait for nothing.
  void take_ahead(int64_t count);
  // Loader only: pulls and copies the batches of n steps, computes nothing.
  void run_loader(int64_t count);
  // The next step is this one of this epoch; weights and everything else stay.
  void go_to(int64_t epoch, int64_t step);

  // One occurrence of a cadence outside a step, to see what it costs; false when this loop has none.
  bool validate_once();
  bool monitor_once();
  bool save_once();  // as a run does: where the store writes by itself, it may not be on the disk yet
  // One pass over the validation data, at most so many batches (0: all), with the averaged weights where there are any.
  std::map<std::string, double> evaluate(Precision precision, int64_t most_batches);
  void watch_noise(NoiseWatch* watch) { engine_.watch_noise(watch); }
  // The copy of the training state that repairs start from, taken now: memory is judged with it in place.
  void refresh_copy() { replay_.copy_now(recording_.step_seconds()); }
};

}  // namespace redline::train
