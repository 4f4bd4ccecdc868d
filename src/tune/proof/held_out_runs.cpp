#include "tune/proof/held_out_runs.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "core/error.h"
#include "core/philox.h"
#include "core/strings.h"
#include "core/time.h"
#include "train/signals.h"
#include "train/trial.h"

namespace redline::tune {

namespace {

constexpr double kPlaces[] = {0.25, 0.5, 0.625, 0.75, 0.875, 1.0};  // of the judged run, where it is looked at
constexpr int kStretches = 8;

double samples_of_step(const train::Job& job, double otherwise) {
  const int64_t batch = job.train_ds().batch_size.value();
  return batch > 0 && !job.train_ds().batch_duration && !job.train_ds().batch_tokens
             ? static_cast<double>(batch * job.trainer().accumulate_grad_batches)
             : otherwise;
}

}  // namespace

// The first pair is the job's own seed.
uint64_t HeldOutRuns::pair_seed(const train::Job& job, int pair) const {
  return pair == 0 ? job.seed() : mix_key(job.seed(), static_cast<uint64_t>(pair)) >> 33;
}

measure::HeldOutCurve HeldOutRuns::make(const JudgedRun& run, const Setting& setting, int pair, bool watch_noise,
                                        double level, double longest) {
  config::RequestSource source = jobs_.with(setting);
  const auto job = train::Job::read(jobs_.registry, source, jobs_.machine);
  const double reference_step = run.samples / static_cast<double>(run.steps);
  const double per_step = samples_of_step(*job, reference_step);
  for (const std::string& word : shortened(*job, run, per_step)) source.overrides.push_back(word);
  source.overrides.push_back(fmt::format("seed={}", pair_seed(*job, pair)));
  train::TrialOptions options;
  options.log = options.monitor = false;
  options.hold_out = run.hold_out;
  train::Trial trial(jobs_.registry, source, jobs_.machine, options);
  options.validate = false;  // the loop validates nothing of itself, but has the data
  trial.vary(options);
  if (watch_noise) trial.watch_noise();

  measure::HeldOutCurve curve;
  double seen = 0;
  const auto look = [&] {
    const auto metrics = trial.evaluate(run.precision, run.held_out_batches);
    const auto found = metrics.find(run.metric);
    if (found == metrics.end())
      throw DataError(fmt::format("A validation gives no '{}', which the certificate is judged by.", run.metric));
    curve.samples.push_back(seen);
    curve.losses.push_back(found->second);
  };
  // To the first step that ends at or after so many samples, give or take half a step.
  const auto run_to = [&](double samples) {
    while (seen < samples - per_step / 2) {
      if (train::StopFlag::requested()) throw PreemptedError("Stopped while a certificate was made.");
      const auto steps = std::max<int64_t>(1, std::llround((samples - seen) / per_step));
      for (const measure::StepRow& row : trial.run(watch_noise ? 1 : steps).rows) seen += row.samples;
      if (!watch_noise) continue;
      const int stretch = std::min(kStretches - 1, static_cast<int>(kStretches * seen / run.samples));
      for (const train::NoiseWatch::Step& step : trial.take_noise()) {
        noise_[stretch].gradient_squared += step.gradient_squared;
        noise_[stretch].variance += step.variance;
      }
    }
  };
  look();
  for (const double place : kPlaces) {
    run_to(place * run.samples);
    look();
    if (!std::isfinite(curve.losses.back())) return curve;
  }
  for (double place = 1.125; place <= longest + 1e-9 && curve.losses.back() > level; place += 0.125) {
    run_to(place * run.samples);
    look();
  }
  return curve;
}

const measure::HeldOutCurve& HeldOutRuns::reference(int pair) {
  const auto found = reference_.find(pair);
  if (found != reference_.end()) return found->second;
  const int64_t begin = now_ns();
  measure::HeldOutCurve curve = make(run_, {}, pair, /*watch_noise=*/true, 0, 1);
  reference_seconds_ = seconds_between(begin, now_ns());
  return reference_[pair] = std::move(curve);
}

double HeldOutRuns::reference_half(int pair) {
  const auto found = halves_.find(pair);
  if (found != halves_.end()) return found->second;
  JudgedRun half = run_;
  half.steps = std::max<int64_t>(1, run_.steps / 2);
  half.samples = run_.samples * static_cast<double>(half.steps) / static_cast<double>(run_.steps);
  return halves_[pair] = make(half, {}, pair, false, 0, 1).losses.back();
}

measure::HeldOutCurve HeldOutRuns::candidate(const Setting& setting, int pair, double level, double longest) {
  try {
    return run_candidate ? run_candidate(setting, pair) : make(run_, setting, pair, false, level, longest);
  } catch (const DivergedError&) {
    return {{0, run_.samples}, {std::nan(""), std::nan("")}};
  }
}

std::vector<measure::NoiseScale> HeldOutRuns::noise() const {
  std::vector<measure::NoiseScale> scales;
  for (const auto& [stretch, sums] : noise_)
    // A stretch whose gradient is lost in its noise says only that the noise is large.
    scales.push_back({run_.samples * (stretch + 1) / kStretches,
                      sums.gradient_squared > 0 ? std::max(0.0, sums.variance / sums.gradient_squared) : 1e9});
  return scales;
}

}  // namespace redline::tune
