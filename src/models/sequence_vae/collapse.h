// Has the posterior collapsed? Pure logic over a sequence of evaluations: thresholds, patience and memory of since
// when. A low KL while its weight is still rising says nothing (a high one neither), so such evaluations are not
// judged.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace redline::models::sequence_vae {

struct CollapseLimits {
  double active_variance = 0.01;   // a unit is active from this variance of its posterior means (Burda et al. 2016)
  double small_kl = 0.1;           // nats; with a small mutual information: the latent code carries nothing
  double small_information = 0.1;  // nats
  double collapsed_dim_kl = 0.01;  // a dimension below this mean KL, or below active_variance, counts as collapsed
  double partial_share = 0.1;      // below this share of active units the collapse is partial
  int64_t patience = 3;            // evaluations in a row before it is called
};

struct Evaluation {
  int64_t step = 0;
  double kl = 0.0, mutual_information = 0.0;  // the paired estimate: its noise must not hide a collapse
  std::vector<double> kl_per_dim, variance_of_means;
  bool weight_is_full = true;  // of the KL term
};

enum class Collapse { None, Partial, Full };
const char* collapse_name(Collapse level);  // "none", "partial", "full"

struct CollapseVerdict {
  Collapse level = Collapse::None;      // what is called: after `patience` evaluations
  Collapse suspected = Collapse::None;  // what the last judged evaluation alone says
  bool judged = false;                  // false while the KL weight rises
  int64_t since_step = 0;               // first evaluation of the present streak; 0 when there is none
  int64_t streak = 0;
  int64_t active_units = 0, collapsed_dims = 0;
  std::vector<std::string> reasons;
  std::string sentence() const;  // one line for the log
};

// One evaluation by itself: level and reasons.
CollapseVerdict judge_alone(const CollapseLimits& limits, const Evaluation& evaluation);

class CollapseDetector {
 public:
  explicit CollapseDetector(CollapseLimits limits) : limits_(limits) {}
  CollapseVerdict update(const Evaluation& evaluation);

  int64_t streak() const { return streak_; }
  int64_t since_step() const { return since_step_; }
  void restore(int64_t streak, int64_t since_step) {
    streak_ = streak;
    since_step_ = since_step;
  }
  const CollapseLimits& limits() const { return limits_; }

 private:
  CollapseLimits limits_;
  int64_t streak_ = 0, since_step_ = 0;
};

}  // namespace redline::models::sequence_vae
