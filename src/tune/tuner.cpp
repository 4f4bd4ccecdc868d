#include "tune/tuner.h"

#include "tune/tuning/tuning.h"

namespace redline::tune {

TuneResult tune_job(const TuneRequest& request) { return Tuning(request).run(); }

std::vector<RaceRow> race_settings(const TuneRequest& request, const std::vector<Setting>& settings, int blocks,
                                   double turn_seconds) {
  return Tuning(request).race(settings, blocks, turn_seconds);
}

std::vector<CertifyRow> certify_settings(const TuneRequest& request, const CertifyRequest& what) {
  return Tuning(request).certify_named(what);
}

}  // namespace redline::tune
