#include "models/sequence_vae/aggressive.h"

namespace redline::models::sequence_vae {

AggressiveTraining::Part AggressiveTraining::part() const {
  if (!active_) return Part::Both;
  return decoder_next_ ? Part::Decoder : Part::Encoder;
}

void AggressiveTraining::committed(double loss_sum, double words) {
  if (!active_) return;
  if (decoder_next_) {  // the decoder had its step: a new inner loop begins
    decoder_next_ = false;
    inner_steps_ = 0;
    loss_sum_ = words_ = 0.0;
    previous_loss_ = -1.0;
    return;
  }
  loss_sum_ += loss_sum;
  words_ += words;
  ++inner_steps_;
  bool rises = false;
  if (inner_steps_ % options_.window == 0 && words_ > 0.0) {
    const double loss = loss_sum_ / words_;
    rises = previous_loss_ >= 0.0 && loss > previous_loss_;
    previous_loss_ = loss;
    loss_sum_ = words_ = 0.0;
  }
  decoder_next_ = rises || inner_steps_ >= options_.max_inner_steps;
}

void AggressiveTraining::validated(double mutual_information) {
  if (!active_) return;
  if (mutual_information < previous_information_) active_ = false;
  previous_information_ = mutual_information;
}

AggressiveTraining::State AggressiveTraining::state() const {
  return {active_, decoder_next_, inner_steps_, loss_sum_, words_, previous_loss_, previous_information_};
}

void AggressiveTraining::restore(const State& state) {
  active_ = state.active;
  decoder_next_ = state.decoder_next;
  inner_steps_ = state.inner_steps;
  loss_sum_ = state.loss_sum;
  words_ = state.words;
  previous_loss_ = state.previous_loss;
  previous_information_ = state.previous_information;
}

}  // namespace redline::models::sequence_vae
