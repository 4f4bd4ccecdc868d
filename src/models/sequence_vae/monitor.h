// PosteriorMetricsMonitor: every update_frequency steps KL (total and per dimension, unmasked), active units, mutual
// information, reconstruction and the collapse verdict, from the posteriors of the latest batches; every plot_frequency
// steps pictures of it. Costs no forward pass; its time is the Monitor phase.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "models/sequence_vae/collapse.h"
#include "models/sequence_vae/history.h"
#include "models/sequence_vae/options.h"
#include "models/sequence_vae/posterior_window.h"
#include "task/task.h"

namespace redline::models::sequence_vae {

class PosteriorMetricsMonitor : public task::Monitor {
 public:
  PosteriorMetricsMonitor(const MonitorOptions& options, const KlScheduleConfig& schedule,
                          std::shared_ptr<PosteriorWindow> window, int64_t latent);

  int64_t update_every_steps() const override { return options_.update_frequency.value(); }
  int64_t plot_every_steps() const override { return options_.plot_frequency.value(); }
  std::map<std::string, double> update(int64_t step) override;
  std::vector<std::string> plot(int64_t step, const std::string& directory) override;
  std::string state_json() const override;
  void load_state_json(const std::string& text) override;
  std::map<std::string, torch::Tensor> state_tensors() const override { return window_->state(); }
  void load_state_tensors(const std::map<std::string, torch::Tensor>& state) override { window_->restore(state); }

  const CollapseVerdict& verdict() const { return verdict_; }
  const History& history() const { return history_; }

  static std::vector<task::MetricInfo> metrics(int64_t latent);

 private:
  void say(int64_t step, const HistoryPoint& point);

  MonitorOptions options_;
  KlScheduleConfig schedule_;
  std::shared_ptr<PosteriorWindow> window_;
  CollapseDetector detector_;
  CollapseVerdict verdict_;
  History history_;
  std::vector<double> kl_per_dim_, variance_;
  Collapse reported_ = Collapse::None;
};

CollapseLimits collapse_limits(const MonitorOptions& options);

}  // namespace redline::models::sequence_vae
