#include "tune/proof/paired_proof.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "core/error.h"
#include "core/strings.h"

namespace redline::tune {

using measure::CertificateKind;
using measure::PairedVerdict;

std::string loss_text(double value) { return fmt::format("{:.4g}", value); }

namespace {

std::string percent(double share) { return fmt::format("{:.3g} %", 100 * share); }

constexpr size_t kFewestHalves = 3;

struct Pairs {
  std::vector<measure::PairedLosses> losses;
  std::vector<measure::HeldOutCurve> reference, candidate;
  bool time_ended = false;
};

CertificateKind kind_of(PairedVerdict verdict) {
  switch (verdict) {
    case PairedVerdict::NotWorse:
      return CertificateKind::NotWorse;
    case PairedVerdict::Worse:
      return CertificateKind::Worse;
    case PairedVerdict::Better:
      return CertificateKind::Different;
    case PairedVerdict::NotShown:
    case PairedVerdict::Undecided:
      return CertificateKind::NotShown;
  }
  return CertificateKind::NotShown;
}

// Means over the pairs, at the places that all of them were looked at.
std::vector<double> mean_curve(const std::vector<measure::HeldOutCurve>& curves,
                               std::vector<double> measure::HeldOutCurve::*values) {
  size_t places = curves.empty() ? 0 : (curves[0].*values).size();
  for (const auto& curve : curves) places = std::min(places, (curve.*values).size());
  std::vector<double> means(places, 0);
  for (const auto& curve : curves)
    for (size_t i = 0; i < places; ++i) means[i] += (curve.*values)[i] / static_cast<double>(curves.size());
  return means;
}

std::string figures(const measure::PairedJudgement& j, const PairedOptions& options, const JudgedRun& run) {
  return fmt::format(
      "after {} samples of each side, the held-out {} of {} pairs of runs differs by {} ({} to {}, 95 %), where {} is "
      "allowed, {} of the {} that the reference learned; p = {:.2g}, held against {:.2g}; this budget of up to {} "
      "pairs "
      "shows a change without effect to be not worse in {:.0f} % of cases",
      format_count(run.samples), run.metric, j.pairs, loss_text(j.difference), loss_text(j.interval.low),
      loss_text(j.interval.high), loss_text(j.margin), percent(options.design.margin), loss_text(j.progress), j.p,
      j.level, options.design.most_pairs, 100 * j.power);
}

std::string pairs_needed_text(const measure::PairedJudgement& j) {
  if (j.pairs_needed > 200) return " More than 200 pairs, or a longer run, would be needed.";
  return fmt::format(" About {} pairs would do so in 90 %.", j.pairs_needed);
}

std::string sentence(const measure::PairedJudgement& j, const Pairs& pairs, const PairedOptions& options,
                     const JudgedRun& run) {
  const std::string where = fmt::format(" Judged on {}, at the end of {}.", run.held_out_words, run.schedule_words);
  if (j.not_finite) return "Worse: its loss is not a number." + where;
  if (j.pairs < 2) return "Not shown: the time ended before there were pairs to judge." + where;
  if (!j.learned)
    return fmt::format(
               "Too short to judge: within {} samples the reference itself learned {} of held-out {}, which {} pairs "
               "cannot tell from nothing. Give a longer budget, or raise the learning rate if the job never learns.",
               format_count(run.samples), loss_text(j.progress), run.metric, j.pairs) +
           where;
  const std::string numbers = figures(j, options, run);
  switch (j.verdict) {
    case PairedVerdict::NotWorse:
      return "Not worse: " + numbers + "." + where;
    case PairedVerdict::Worse:
      return "Worse: " + numbers + "." + where;
    case PairedVerdict::Better:
      return "It learns more than the margin beyond the reference, which a change of numbers or order alone cannot do, "
             "so something else changed: " +
             numbers + "." + where;
    case PairedVerdict::NotShown:
    case PairedVerdict::Undecided:
      break;
  }
  return "Not shown to be no worse" + std::string(pairs.time_ended ? ", the time ended" : "") + ": " + numbers + "." +
         pairs_needed_text(j) + where;
}

// To a loss that the user asked for: where both curves reach it.
void to_target(measure::TimeToLoss& time, const Pairs& pairs, const JudgedRun& run, double target) {
  std::vector<double> ratios;
  bool known = true;
  for (const auto& curve : pairs.reference) known = known && curve.losses.back() <= target;
  for (size_t i = 0; i < pairs.candidate.size(); ++i) {
    const double level = known ? target : pairs.reference[i].losses.back();
    if (!measure::samples_to_reach(pairs.candidate[i], level)) time.reached = false;
    if (const auto ratio = measure::pair_efficiency(pairs.reference[i], pairs.candidate[i], level))
      ratios.push_back(*ratio);
  }
  time.level = known ? fmt::format("{} {}", run.metric, loss_text(target))
                     : fmt::format("the reference's last {}, since {} is not reached in runs this short", run.metric,
                                   loss_text(target));
  if (ratios.size() == pairs.candidate.size() && ratios.size() > 1) time.efficiency = measure::mean_ratio(ratios);
}

// To the reference's last loss: what a sample is worth, by runs of the reference of half the length.
void to_last_loss(measure::TimeToLoss& time, const Pairs& pairs, HeldOutRuns& runs, const PairedOptions& options) {
  time.level = fmt::format("the reference's last {}", runs.run().metric);
  std::vector<double> half, whole, mine;
  for (size_t i = 0; i < pairs.candidate.size(); ++i) {
    if (i >= kFewestHalves && options.out_of_time && options.out_of_time()) break;
    half.push_back(runs.reference_half(static_cast<int>(i)));
    whole.push_back(pairs.losses[i].reference);
    mine.push_back(pairs.losses[i].candidate);
  }
  time.efficiency = measure::schedule_efficiency(half, whole, mine);
}

measure::TimeToLoss time_to_loss(const Pairs& pairs, HeldOutRuns& runs, const PairedOptions& options) {
  measure::TimeToLoss time;
  const JudgedRun& run = runs.run();
  const double batch = run.samples / static_cast<double>(run.steps);
  const std::vector<measure::NoiseScale> noise = runs.noise();
  time.predicted_efficiency = measure::noise_efficiency(noise, batch, options.samples_factor * batch);
  if (!noise.empty()) time.noise_scale = noise.back().noise;
  if (options.target)
    to_target(time, pairs, run, *options.target);
  else
    to_last_loss(time, pairs, runs, options);
  return time;
}

std::string time_sentence(const measure::TimeToLoss& time) {
  const std::string noise = fmt::format("its noise scale predicts {:.2f}", time.predicted_efficiency);
  if (!time.efficiency) return fmt::format(" A sample's worth to {} could not be measured; {}.", time.level, noise);
  return fmt::format(" A sample is worth {:.2f} ({:.2f} to {:.2f}) of the reference's, to {}; {}.",
                     time.efficiency->ratio, time.efficiency->interval.low, time.efficiency->interval.high, time.level,
                     noise);
}

}  // namespace

void set_speed(measure::Certificate& certificate, const measure::RatioEstimate& speed, bool decides) {
  if (!certificate.time_to_loss) return;
  measure::TimeToLoss& time = *certificate.time_to_loss;
  time.predicted_ratio = speed.ratio * time.predicted_efficiency;
  if (time.efficiency) time.ratio = measure::product(speed, *time.efficiency);
  if (!decides || !time.ratio) return;
  if (!time.reached)
    certificate.kind = CertificateKind::NotShown;
  else if (time.ratio->interval.low > 1)
    certificate.kind = CertificateKind::Sooner;
  else
    certificate.kind = time.ratio->interval.high < 1 ? CertificateKind::Worse : CertificateKind::NotShown;
  certificate.reason = fmt::format("To {}: {:.2f} times as fast ({:.2f} to {:.2f}){}. At equal samples: ", time.level,
                                   time.ratio->ratio, time.ratio->interval.low, time.ratio->interval.high,
                                   time.reached ? "" : ", though not reached in every pair") +
                       certificate.reason;
}

measure::Certificate judge_by_pairs(HeldOutRuns& runs, const Setting& setting, const PairedOptions& options) {
  const measure::PairedDesign& design = options.design;
  Pairs pairs;
  measure::PairedJudgement judgement;
  while (judgement.verdict == PairedVerdict::Undecided || options.every_pair) {
    const auto pair = static_cast<int>(pairs.losses.size());
    if (pair >= design.most_pairs) break;
    if (pair > 0 && options.out_of_time && options.out_of_time()) {
      pairs.time_ended = true;
      break;
    }
    const measure::HeldOutCurve& reference = runs.reference(pair);
    if (!std::isfinite(reference.losses.back()))
      throw Error(ExitCode::Diverged,
                  "the reference's own held-out loss is not a number: nothing can be compared with it");
    const double judged = options.target.value_or(reference.losses.back());
    pairs.reference.push_back(reference);
    pairs.candidate.push_back(
        runs.candidate(setting, pair, std::max(judged, reference.losses.back()), options.longest));
    // At the judged point: what came after was only to see when the loss is reached.
    const measure::HeldOutCurve& mine = pairs.candidate.back();
    const size_t place = std::min(reference.losses.size(), mine.losses.size()) - 1;
    const double last = std::isfinite(mine.losses.back()) ? mine.losses[place] : mine.losses.back();
    pairs.losses.push_back({reference.losses.front(), reference.losses.back(), last});
    judgement = judge_pairs(pairs.losses, design);
  }
  if (judgement.pairs > 1) add_power(judgement, design);

  const JudgedRun& run = runs.run();
  measure::Certificate certificate;
  certificate.kind = kind_of(judgement.verdict);
  certificate.reason = sentence(judgement, pairs, options, run);
  certificate.steps = run.steps;
  certificate.samples = static_cast<int64_t>(run.samples);
  certificate.reference_losses = mean_curve(pairs.reference, &measure::HeldOutCurve::losses);
  certificate.candidate_losses = mean_curve(pairs.candidate, &measure::HeldOutCurve::losses);
  certificate.curve_samples = mean_curve(pairs.reference, &measure::HeldOutCurve::samples);
  measure::PairedEvidence& paired = certificate.paired.emplace();
  paired.metric = run.metric;
  paired.held_out = run.held_out_words;
  paired.held_out_samples = run.held_out_samples;
  paired.schedule = run.schedule_words;
  paired.pairs = judgement.pairs;
  paired.most_pairs = design.most_pairs;
  paired.p = judgement.p;
  paired.level = judgement.level;
  paired.margin_share = design.margin;
  paired.margin = judgement.margin;
  if (!certificate.reference_losses.empty()) {
    paired.start = certificate.reference_losses.front();
    paired.reference = certificate.reference_losses.back();
  }
  paired.difference = judgement.difference;
  paired.interval = judgement.interval;
  paired.power = judgement.power;
  paired.pairs_needed = judgement.pairs_needed;
  for (const measure::PairedLosses& one : pairs.losses) paired.differences.push_back(one.difference());
  certificate.checks = {{fmt::format("held-out {} at {} samples", run.metric, certificate.samples),
                         judgement.progress > 0 ? judgement.difference / judgement.progress : 0, design.margin,
                         fmt::format("the margin: a share of what the reference learned, {} pairs", judgement.pairs),
                         certificate.kind == CertificateKind::NotWorse}};
  if (!options.changes_optimisation || judgement.not_finite) return certificate;
  certificate.time_to_loss = time_to_loss(pairs, runs, options);
  certificate.reason += time_sentence(*certificate.time_to_loss);
  return certificate;
}

}  // namespace redline::tune
