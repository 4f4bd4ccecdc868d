// From what was observed to a winner: races that calibrate the predictions, candidates, the search.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "core/strings.h"
#include "tune/search/companions.h"
#include "tune/tuning/tuning.h"

namespace redline::tune {

namespace {

constexpr double kLeastSearchShare = 0.3;   // of the budget
constexpr double kCalibrationShare = 0.35;  // by then the predictions are made
constexpr double kWorthPairs = 0.02;        // predicted gain of what needs pairs, for which time is kept
constexpr double kCompileBudget = 300;      // a compilation takes about a minute, which others would lose
constexpr int kCalibratingRaces = 5;
constexpr int kLeastCalibrationBlocks = 2, kMostCalibrationBlocks = 8;

}  // namespace

std::optional<measure::RatioEstimate> Tuning::calibrating_blocks(const Setting& a, const Setting& b) {
  std::vector<double> before, after;
  // All settings that calibrate shall have their turn, each with a warm-up as long as two blocks.
  const double time = kCalibrationShare * request_.budget_seconds / kCalibratingRaces;
  const int most = std::clamp(static_cast<int>(time / (4 * pool_->turn_seconds())) - 2, kLeastCalibrationBlocks,
                              kMostCalibrationBlocks);
  // Where not even the least fits, nothing would be learned for the time.
  const double turn =
      std::max(pool_->turn_seconds(), seen_.bare_step_seconds() * std::max(samples_factor(a), samples_factor(b)));
  const double until = kCalibrationShare * request_.budget_seconds;
  if (spent() + 4 * (kLeastCalibrationBlocks + 1) * turn > until) return std::nullopt;
  for (int block = 0; block < most && spent() < until; ++block) {
    const TrialPool::Block result = run_block(a, b, block);
    if (!result.a || !result.b) return std::nullopt;
    before.push_back(*result.a);
    after.push_back(*result.b);
  }
  if (after.size() < 2) return std::nullopt;
  std::vector<double>& race = calibrating_.emplace_back();
  for (size_t i = 0; i < after.size(); ++i) race.push_back(std::log(before[i] / after[i]));
  return measure::compare_blocks(before, after);
}

// A few settings are raced before anything is predicted, since the reference alone does not say what larger pieces,
// their padding and other threads do.
void Tuning::calibrate() {
  doctor::Calibration& races = seen_.calibration;
  const auto raced = [](const Setting& setting, const measure::RatioEstimate& e) {
    return doctor::Calibration::Race{setting, e.ratio, std::log(e.interval.high / e.interval.low) / (2 * 1.96)};
  };
  const auto precision = other_precision(view_, jobs_.machine, request_.allow);
  if (precision)
    if (const auto gain = calibrating_blocks({}, *precision)) races.precise = raced(*precision, *gain);
  if (const auto larger = larger_pieces(view_))
    if (const auto ratio = calibrating_blocks({}, *larger)) {
      races.larger = raced(*larger, *ratio);
      if (const auto bucketed = in_buckets(view_, request_.allow, *larger))
        if (const auto gain = calibrating_blocks(*larger, *bucketed)) races.bucketed = raced(*bucketed, *gain);
      if (races.precise) {
        const Setting precise = combine(*larger, *precision);
        if (const auto gain = calibrating_blocks(*larger, precise)) races.larger_precise = raced(precise, *gain);
      }
    }
  if (const auto threads = other_threads(view_, jobs_.machine))
    if (const auto ratio = calibrating_blocks({}, {{kThreadsPath, std::to_string(*threads)}})) {
      const double step = seen_.step_seconds, wait = seen_.phase(measure::Phase::Wait).seconds_per_step;
      const auto share = [&](double times) {
        return doctor::parallel_share(step, step / times, wait, view_.threads, *threads);
      };
      races.parallel_share = share(ratio->ratio);
      races.parallel_deviation = std::abs(share(ratio->interval.high) - share(ratio->interval.low)) / (2 * 1.96);
    }
}

// How many of the reference's steps hold the samples of one step under a setting.
double Tuning::samples_factor(const Setting& setting) const {
  return static_cast<double>(step_batch(view_, setting).samples()) / static_cast<double>(view_.effective_batch());
}

// Switches that change nothing but the name of the run, each said to gain 5 %.
std::vector<Candidate> Tuning::same_candidates() const {
  std::vector<Candidate> all;
  for (int i = 1; i <= request_.same; ++i) {
    const std::string name = fmt::format("same-{}", i);
    all.push_back({"name " + name, {{"name", name}}, 0.05, 1e9, config::Effect::Nothing, "name", "name", "-", name});
  }
  return all;
}

std::vector<Candidate> Tuning::candidates() const {
  if (request_.same > 0) return same_candidates();
  std::vector<Candidate> all =
      make_candidates(view_, seen_, jobs_.machine, request_.allow, *plans_, request_.cadence_share);
  for (Candidate& c : all)
    if (c.not_tried.empty() && c.values.contains(kCompilePath) && request_.budget_seconds < kCompileBudget) {
      c.not_tried =
          fmt::format("a trial of it begins with a compilation: --budget {} would try it", budget_text(kCompileBudget));
      c.over_budget = true;
    }
  // What could not be proved within the budget is not worth a race.
  for (Candidate& c : all) {
    if (!c.not_tried.empty() || proved_step_by_step(c)) continue;
    c.not_tried = pairs_refusal(c.values);
    c.over_budget = !c.not_tried.empty();
    // Where a step holds other samples, what counts is speed times what they are worth.
    const double worth = efficiency(c.values);
    c.predicted_gain = (1 + c.predicted_gain) * worth - 1;
    if (c.ceiling < 1e8) c.ceiling = (1 + c.ceiling) * worth - 1;
  }
  if (!jobs_.source.file) return all;
  for (const std::string& name : config::preset_names(*jobs_.source.file)) {
    if (jobs_.source.preset == name) continue;
    Candidate preset{
        "preset " + name, {{kPresetKey, name}}, 0, 1e9, config::Effect::Model, "preset", "preset", "-", name};
    preset.ledger_only = preset.late = true;
    all.push_back(std::move(preset));
  }
  return all;
}

void Tuning::search() {
  plan_pairs();
  calibrate();
  plans_.emplace(seen_, [&](const Setting& setting) {
    const QuietLog quiet;
    return plan_shape(jobs_, *task_, setting);
  });
  SearchOptions options;
  const double budget = request_.budget_seconds, step = seen_.bare_step_seconds();
  std::vector<Candidate> all = candidates();
  double proof = std::max(kProofShare * budget, kExactProofRuns * 4 * step);
  const bool pairs = std::any_of(all.begin(), all.end(), [](const Candidate& c) {
    return c.not_tried.empty() && !c.ledger_only && c.predicted_gain > kWorthPairs && !proved_step_by_step(c);
  });
  if (pairs) proof = std::max(proof, std::min(usual_proof_seconds(), kMostProofShare * budget));
  say_what_is_missing(all);
  const double largest = largest_batch_seconds();
  options.budget_seconds = std::max(kLeastSearchShare * budget, budget - proof - confirm_seconds() - largest);
  options.full_ledger = request_.full_ledger;
  options.plan_gain = [this](const Setting& setting) {  // speed times what a sample is worth, as every row
    return (1 + plans_->gain(setting)) * efficiency(setting) - 1;
  };
  options.earlier_races = std::move(calibrating_);
  search_ = std::make_unique<Search>(std::move(all), options);
  if (!killed_.empty()) search_->fail(killed_, kKilled);
  const auto count = std::count_if(search_->entries().begin(), search_->entries().end(),
                                   [](const Entry& e) { return e.state == EntryState::Untried; });
  say(fmt::format("The reference runs at {:.1f} samples/s; {} switches are worth a trial.",
                  seen_.samples_per_step / seen_.bare_step_seconds(), count));
  std::string reason;
  while (const auto pairing = search_->next(spent())) {
    if (pairing->reason != reason) say(fmt::format("[{:.0f} s] {}", spent(), reason = pairing->reason));
    const TrialPool::Block block = run_block(pairing->a, pairing->b, pairing->block);
    best_ = search_->best();
    stop_if_asked();
    search_->report(goodput(block.a, pairing->a), block.a_failed ? std::optional(1.0) : goodput(block.b, pairing->b),
                    block.failure);
  }
  choose(search_->members());
  if (search_->out_of_budget()) {
    std::string note = fmt::format("The budget ended first: one more change could gain up to {:+.0f} %",
                                   100 * search_->untested_gain());
    if (const auto unknown = search_->unknown(); !unknown.empty())
      note += fmt::format(", and nothing is known of {}", join(unknown, ", "));
    notes_.push_back(note + ".");
    say(notes_.back());
  }
}

void Tuning::choose(std::vector<size_t> members) {
  members_ = std::move(members);
  best_.clear();
  for (const size_t member : members_) best_ = combine(best_, search_->entries()[member].candidate.values);
}

std::vector<Candidate> Tuning::chosen() const {
  std::vector<Candidate> all;
  for (const size_t member : members_) all.push_back(search_->entries()[member].candidate);
  return all;
}

}  // namespace redline::tune
