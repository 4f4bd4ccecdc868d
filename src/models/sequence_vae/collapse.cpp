#include "models/sequence_vae/collapse.h"

#include <fmt/format.h>

#include "core/strings.h"

namespace redline::models::sequence_vae {

const char* collapse_name(Collapse level) {
  switch (level) {
    case Collapse::None:
      return "none";
    case Collapse::Partial:
      return "partial";
    case Collapse::Full:
      return "full";
  }
  return "none";
}

CollapseVerdict judge_alone(const CollapseLimits& limits, const Evaluation& e) {
  CollapseVerdict v;
  v.judged = e.weight_is_full;
  const auto latent = static_cast<int64_t>(e.variance_of_means.size());
  for (size_t j = 0; j < e.variance_of_means.size(); ++j) {
    const bool active = e.variance_of_means[j] >= limits.active_variance;
    v.active_units += active ? 1 : 0;
    v.collapsed_dims += !active || e.kl_per_dim[j] < limits.collapsed_dim_kl ? 1 : 0;
  }
  if (v.active_units == 0)
    v.reasons.push_back(fmt::format("no active unit (variance of posterior means below {:g} in all {} dimensions)",
                                    limits.active_variance, latent));
  if (e.kl < limits.small_kl && e.mutual_information < limits.small_information)
    v.reasons.push_back(fmt::format("KL {:.3g} and mutual information {:.3g} nats are below {:g} and {:g}", e.kl,
                                    e.mutual_information, limits.small_kl, limits.small_information));
  if (!v.reasons.empty()) {
    v.suspected = Collapse::Full;
  } else if (static_cast<double>(v.active_units) < limits.partial_share * static_cast<double>(latent)) {
    v.suspected = Collapse::Partial;
    v.reasons.push_back(fmt::format("{} of {} units are active, fewer than {:g} %", v.active_units, latent,
                                    100.0 * limits.partial_share));
  }
  return v;
}

CollapseVerdict CollapseDetector::update(const Evaluation& evaluation) {
  CollapseVerdict v = judge_alone(limits_, evaluation);
  if (v.judged) {
    if (v.suspected == Collapse::None) {
      streak_ = since_step_ = 0;
    } else if (++streak_ == 1) {
      since_step_ = evaluation.step;
    }
  }
  v.streak = streak_;
  v.since_step = since_step_;
  if (v.judged && streak_ >= limits_.patience) v.level = v.suspected;
  return v;
}

std::string CollapseVerdict::sentence() const {
  if (level == Collapse::None) return fmt::format("no posterior collapse: {} active units", active_units);
  return fmt::format("posterior collapse ({}) since step {}: {}", collapse_name(level), since_step,
                     join(reasons, "; "));
}

}  // namespace redline::models::sequence_vae
