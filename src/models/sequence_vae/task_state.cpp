// What the task remembers between steps, and how it is registered.
#include <nlohmann/json.hpp>

#include "data/option_names.h"
#include "models/sequence_vae/task.h"

namespace redline::models::sequence_vae {

std::unique_ptr<task::Monitor> SequenceVaeTask::monitor() {
  if (!window_) return nullptr;
  return std::make_unique<PosteriorMetricsMonitor>(options_.monitor, options_.kl_schedule, window_,
                                                   options_.latent_dim);
}

void SequenceVaeTask::begin_attempt() {
  if (window_) window_->drop_staged();
  step_loss_ = step_words_ = 0.0;
}

// Aggressive training decides by them which half is updated next: alike on all ranks.
std::vector<double> SequenceVaeTask::step_sums() const {
  if (!aggressive_.active()) return {};
  return {step_loss_, step_words_};
}

void SequenceVaeTask::set_step_sums(const std::vector<double>& sums) {
  step_loss_ = sums.at(0);
  step_words_ = sums.at(1);
}

void SequenceVaeTask::committed(int64_t step) {
  steps_done_ = step;
  if (window_) window_->commit();
  if (aggressive_.active()) aggressive_.committed(step_loss_, step_words_);
  step_loss_ = step_words_ = 0.0;
}

std::string SequenceVaeTask::state_json() const {
  const AggressiveTraining::State a = aggressive_.state();
  return nlohmann::json{{"steps_done", steps_done_},
                        {"aggressive",
                         {{"active", a.active},
                          {"decoder_next", a.decoder_next},
                          {"inner_steps", a.inner_steps},
                          {"loss_sum", a.loss_sum},
                          {"words", a.words},
                          {"previous_loss", a.previous_loss},
                          {"previous_information", a.previous_information}}}}
      .dump();
}

void SequenceVaeTask::load_state_json(const std::string& text) {
  const nlohmann::json state = nlohmann::json::parse(text);
  if (state.empty()) return;
  steps_done_ = state.at("steps_done");
  const nlohmann::json& a = state.at("aggressive");
  aggressive_.restore({a.at("active"), a.at("decoder_next"), a.at("inner_steps"), a.at("loss_sum"), a.at("words"),
                       a.at("previous_loss"), a.at("previous_information")});
}

void SequenceVaeConfig::resolve(const MachineFacts&) {
  options_.monitor.resolve();
  options_.check();
}

// While the KL term's weight grows, the loss rises although the model gets better.
// Encoder and decoder take steps in turn: with fewer of them for the same samples neither count keeps its meaning.
std::vector<std::string> SequenceVaeConfig::bound_to_batch() const {
  if (options_.aggressive.enabled) return {"model.aggressive.enabled"};
  return {};
}

std::string SequenceVaeConfig::monitor_metric() const {
  return options_.kl_schedule.kind == "constant" ? "val_loss" : "val_negative_elbo";
}

std::unique_ptr<task::Task> SequenceVaeConfig::build(uint64_t seed) const {
  return std::make_unique<SequenceVaeTask>(options_, seed);
}

task::TaskEntry sequence_vae_entry() {
  task::TaskEntry entry;
  entry.name = "sequence_vae";
  entry.sentence =
      "Variational autoencoder of token or real-valued sequences (Transformer or LSTM) with a posterior-collapse "
      "monitor.";
  entry.make_config = [] { return std::make_unique<SequenceVaeConfig>(); };
  entry.guide_claims = {{"batch_size", "1", "4", "+30-50 %"},      {"micro_batch_size", "1", "4", "+30-50 %"},
                        {data::kNumWorkers, "2", "8", "+20-30 %"}, {"precision", "", "", "+20-40 %"},
                        {"update_frequency", "", "", "+5-15 %"},   {"val_check_interval", "", "", "+5-15 %"}};
  entry.monitor_option = "model.monitor.update_frequency";
  entry.monitor_plot_option = "model.monitor.plot_frequency";
  return entry;
}

}  // namespace redline::models::sequence_vae
