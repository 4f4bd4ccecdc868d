// One look: window to host, statistics, verdict, history. The verdict is said once when it is called and once when it
// ends.
#include "models/sequence_vae/monitor.h"

#include <fmt/format.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "core/file_ops.h"
#include "core/log.h"
#include "models/sequence_vae/plots.h"

namespace redline::models::sequence_vae {

CollapseLimits collapse_limits(const MonitorOptions& options) {
  CollapseLimits limits;
  limits.active_variance = options.active_variance;
  limits.small_kl = options.small_kl;
  limits.small_information = options.small_information;
  limits.partial_share = options.partial_share;
  limits.patience = options.patience;
  return limits;
}

PosteriorMetricsMonitor::PosteriorMetricsMonitor(const MonitorOptions& options, const KlScheduleConfig& schedule,
                                                 std::shared_ptr<PosteriorWindow> window, int64_t latent)
    : options_(options),
      schedule_(schedule),
      window_(std::move(window)),
      detector_(collapse_limits(options)),
      kl_per_dim_(static_cast<size_t>(latent)),
      variance_(static_cast<size_t>(latent)) {
  options_.resolve();
}

std::map<std::string, double> PosteriorMetricsMonitor::update(int64_t step) {
  if (window_->empty()) return {};
  const PosteriorWindow::Snapshot snapshot = window_->snapshot();
  PosteriorStatistics statistics(snapshot.latent);
  statistics.add(snapshot.view(), std::nullopt);
  const Posteriors estimated = snapshot.last(options_.mutual_information_samples);
  const Information information = mutual_information(estimated);
  Evaluation evaluation{step,
                        statistics.kl(),
                        information.paired,
                        statistics.kl_per_dim(),
                        statistics.variance_of_means(),
                        kl_weight_is_full(schedule_, step)};
  kl_per_dim_ = evaluation.kl_per_dim;
  variance_ = evaluation.variance_of_means;
  verdict_ = detector_.update(evaluation);
  const HistoryPoint point{step,
                           evaluation.kl,
                           information.closed_form,
                           snapshot.reconstruction,
                           kl_weight(schedule_, step),
                           verdict_.active_units,
                           static_cast<int>(verdict_.level)};
  history_.add(point);
  say(step, point);
  std::map<std::string, double> metrics = {
      {"posterior/kl", point.kl},
      {"posterior/mutual_information", point.mutual_information},
      {"posterior/mutual_information_paired", information.paired},
      {"posterior/mutual_information_n", static_cast<double>(estimated.n)},
      {"posterior/active_units", static_cast<double>(verdict_.active_units)},
      {"posterior/collapsed_dims", static_cast<double>(verdict_.collapsed_dims)},
      {"posterior/reconstruction", point.reconstruction},
      {"posterior/kl_weight", point.kl_weight},
      {"posterior/collapse", static_cast<double>(point.collapse)},
  };
  for (size_t j = 0; j < kl_per_dim_.size(); ++j) metrics[fmt::format("posterior/kl_dim_{:02d}", j)] = kl_per_dim_[j];
  return metrics;
}

void PosteriorMetricsMonitor::say(int64_t step, const HistoryPoint& point) {
  if (options_.verbose)
    log_info(fmt::format(
        "step {}: KL {:.3f} (weight {:.2f}), mutual information {:.3f}, active units {}/{}, reconstruction {:.2f}, "
        "collapse {}{}",
        step, point.kl, point.kl_weight, point.mutual_information, point.active_units, kl_per_dim_.size(),
        point.reconstruction, collapse_name(verdict_.level), verdict_.judged ? "" : " (not judged: KL weight rises)"));
  if (!verdict_.judged || verdict_.level == reported_) return;
  if (verdict_.level == Collapse::None)
    log_info(fmt::format("Step {}: the posterior has recovered; {} active units.", step, point.active_units));
  else
    log_warning(
        fmt::format("Step {}: {}. Try a KL schedule (model.kl_schedule.kind linear or cyclical), free bits "
                    "(model.free_bits.mode) or model.aggressive.enabled.",
                    step, verdict_.sentence()));
  reported_ = verdict_.level;
}

std::vector<std::string> PosteriorMetricsMonitor::plot(int64_t step, const std::string& directory) {
  const std::filesystem::path folder = directory;
  std::filesystem::create_directories(folder);
  const PosteriorPicture picture{step, history_.points(), kl_per_dim_, variance_, options_.active_variance, verdict_};
  std::vector<std::string> files;
  const auto write = [&](const std::string& name, const std::string& bytes) {
    write_file_atomic(folder / name, bytes);
    files.push_back((folder / name).string());
  };
  write("posterior_history.svg", history_svg(picture));
  write("posterior_dimensions.svg", dimensions_svg(picture));
  write("posterior_history.png", history_png(picture));
  write("posterior_dimensions.png", dimensions_png(picture));
  return files;
}

std::string PosteriorMetricsMonitor::state_json() const {
  nlohmann::json points = nlohmann::json::array();
  for (const HistoryPoint& p : history_.points())
    points.push_back({p.step, p.kl, p.mutual_information, p.reconstruction, p.kl_weight, p.active_units, p.collapse});
  return nlohmann::json{{"streak", detector_.streak()},
                        {"since_step", detector_.since_step()},
                        {"reported", static_cast<int>(reported_)},
                        {"kl_per_dim", kl_per_dim_},
                        {"variance", variance_},
                        {"window_batches", window_->size()},
                        {"history", {{"stride", history_.stride()}, {"seen", history_.seen()}, {"points", points}}}}
      .dump();
}

void PosteriorMetricsMonitor::load_state_json(const std::string& text) {
  const nlohmann::json state = nlohmann::json::parse(text);
  if (state.empty()) return;  // a run that was not monitored before
  if (!state.contains("window_batches"))
    log_info(
        "The checkpoint is of an older version and does not hold the monitor's latest posteriors: its first looks "
        "after "
        "this resume cover fewer batches.");
  detector_.restore(state.at("streak"), state.at("since_step"));
  reported_ = static_cast<Collapse>(state.at("reported").get<int>());
  kl_per_dim_ = state.at("kl_per_dim").get<std::vector<double>>();
  variance_ = state.at("variance").get<std::vector<double>>();
  std::vector<HistoryPoint> points;
  for (const nlohmann::json& p : state.at("history").at("points"))
    points.push_back({p[0], p[1], p[2], p[3], p[4], p[5], p[6]});
  history_.restore(std::move(points), state.at("history").at("stride"), state.at("history").at("seen"));
}

std::vector<task::MetricInfo> PosteriorMetricsMonitor::metrics(int64_t latent) {
  std::vector<task::MetricInfo> list = {
      {"posterior/kl", "nats", "KL from the posteriors of the latest batches to the prior, all dimensions, unmasked."},
      {"posterior/mutual_information", "nats",
       "Estimate of I(x; z) on the latest posteriors; at most log of their number; noisy, may be negative."},
      {"posterior/mutual_information_paired", "nats",
       "The same with both of its terms at the same draws, so that their noise cancels; the verdict uses it."},
      {"posterior/mutual_information_n", "", "Number of posteriors in that estimate."},
      {"posterior/active_units", "", "Dimensions whose posterior means vary."},
      {"posterior/collapsed_dims", "", "Dimensions that carry next to nothing."},
      {"posterior/reconstruction", "nats", "Mean reconstruction of the latest batches, per sequence."},
      {"posterior/kl_weight", "", "Weight of the KL term."},
      {"posterior/collapse", "", "Collapse verdict: 0 none, 1 partial, 2 full."},
  };
  for (int64_t j = 0; j < latent; ++j)
    list.push_back({fmt::format("posterior/kl_dim_{:02d}", j), "nats", fmt::format("KL of latent dimension {}.", j)});
  return list;
}

}  // namespace redline::models::sequence_vae
