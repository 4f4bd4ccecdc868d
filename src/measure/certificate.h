// The certificate: the proof that a tuned config trains like the reference, by the kinds of the design. Filled by tune,
// printed by report.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "measure/statistics.h"

namespace redline::measure {

inline constexpr int kCertificateVersion = 1;

enum class CertificateKind {
  Identical,          // every compared number has the same bits
  WithinNoise,        // differences no larger than the reference has from itself
  TrainsDifferently,  // the optimisation differs and the user agreed to that; loss at equal samples within the spread
                      // of seeds or better
  Different,          // none of these: rejected
};
const char* certificate_kind_name(CertificateKind kind);

// One comparison that the verdict rests on.
struct CertificateCheck {
  std::string name;              // "loss of steps 1..20", "samples of an epoch", "loss at 4,000 samples"
  double difference = 0;         // as measured, relative to the reference
  double tolerance = 0;          // measured, not chosen
  std::string tolerance_source;  // "reference with 1 against 2 threads", "5 seeds"
  bool passed = false;
};

struct Certificate {
  CertificateKind kind = CertificateKind::Different;
  std::string reference_hash, candidate_hash;  // of the resolved configs
  std::vector<std::string> effects;            // kinds of the switches that moved: "numerics", "order", ...
  uint64_t seed = 0;
  int64_t steps = 0;    // replayed on the same samples
  int64_t samples = 0;  // seen by each
  std::vector<CertificateCheck> checks;
  std::optional<int64_t> first_different_step;
  std::vector<double> reference_losses, candidate_losses;  // per step or per validation, for the curves
  std::optional<Interval> seed_spread;                     // of the final loss over seeds of the reference
  bool consent = false;                                    // the user allowed `optimisation`
  std::string reason;                                      // one sentence for a person

  bool accepted() const { return kind != CertificateKind::Different; }
};

}  // namespace redline::measure
