// Aggressive encoder training (He et al. 2019) as a state machine over optimiser steps: which half of the model the
// next step updates. Pure: no tensor, clock or thread.
//
// The reference draws extra batches for its inner loop and goes back to the first one for the decoder's step. Here
// every step is the plan's next batch, so that no sample is seen twice in an epoch and a checkpoint stays a position in
// the plan: inner steps update the encoder, the step after them the decoder.
#pragma once

#include <cstdint>

#include "models/sequence_vae/options.h"

namespace redline::models::sequence_vae {

class AggressiveTraining {
 public:
  enum class Part { Both, Encoder, Decoder };
  explicit AggressiveTraining(const AggressiveOptions& options) : options_(options), active_(options.enabled) {}

  // What the next optimiser step updates.
  Part part() const;
  // After a committed step: its summed loss and how many words that was of.
  void committed(double loss_sum, double words);
  // After a validation: turns itself off for good when the mutual information has fallen.
  void validated(double mutual_information);

  bool active() const { return active_; }

  struct State {
    bool active = false, decoder_next = false;
    int64_t inner_steps = 0;
    double loss_sum = 0.0, words = 0.0, previous_loss = -1.0,
           previous_information = 0.0;  // previous_loss < 0: none yet
  };
  State state() const;
  void restore(const State& state);

 private:
  AggressiveOptions options_;
  bool active_;
  bool decoder_next_ = false;
  int64_t inner_steps_ = 0;
  double loss_sum_ = 0.0, words_ = 0.0;  // of the present window
  double previous_loss_ = -1.0;          // per word, of the window before
  double previous_information_ = 0.0;
};

}  // namespace redline::models::sequence_vae
