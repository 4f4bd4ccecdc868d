// The answer's rows beyond speed: what needs consent or a longer budget, what a sample is worth, claims beside the
// change they speak of; and settings a user names, certified.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "core/error.h"
#include "core/strings.h"
#include "tune/search/companions.h"
#include "tune/tuning/tuning.h"

namespace redline::tune {

namespace {

// A guide's claim that names two values is about the way from one to the other and stands beside that change only.
bool speaks_of(const task::GuideClaim& claim, const measure::LedgerEntry& row) {
  if (claim.field != row.field) return false;
  return (claim.from.empty() || claim.from == row.from) && (claim.to.empty() || claim.to == row.to);
}

measure::RatioEstimate scaled(const measure::RatioEstimate& e, double by) {
  return {e.ratio * by, {e.interval.low * by, e.interval.high * by}, e.blocks};
}

bool is_row_of(const measure::LedgerEntry& row, const Candidate& c) {
  return row.field == c.field && row.from == c.from && row.to == c.to;
}

constexpr double kWorthAWord = 0.02;
constexpr int kSpeedBlocks = 8;

// What a compilation of so many seconds costs a run whose step becomes `ratio` times as fast.
std::string compile_cost_text(double seconds, double ratio, double step_seconds) {
  const double saved = step_seconds * (1 - 1 / ratio);
  return saved > 0 ? fmt::format("compiling took {}, which {} steps bring back", format_seconds(seconds),
                                 format_count(std::ceil(seconds / saved)))
                   : fmt::format("compiling took {}, which nothing brings back", format_seconds(seconds));
}

}  // namespace

// Before the budget is spent: what it cannot answer, and what would.
void Tuning::say_what_is_missing(const std::vector<Candidate>& all) {
  const Candidate* best = nullptr;
  double longest = 0;
  for (const Candidate& c : all) {
    if (!c.over_budget || c.ledger_only || c.predicted_gain < kWorthAWord) continue;
    longest = std::max(longest, least_proof_seconds(c.values));
    if (best == nullptr || c.predicted_gain > best->predicted_gain) best = &c;
  }
  if (best == nullptr) return;
  notes_.push_back(fmt::format(
      "A budget of {} is too short to prove {} ({:+.0f} % predicted){}: --budget {} would do. The rest is "
      "searched now.",
      format_seconds(request_.budget_seconds), setting_text(best->values), 100 * best->predicted_gain,
      runs_ ? "" : " or anything else that changes more than rounding", budget_text(longest / kMostProofShare)));
  say(notes_.back());
}

void Tuning::answer(measure::Ledger& ledger) {
  if (runs_ && !runs_->noise().empty()) ledger.noise_scale = runs_->noise().back().noise;
  for (measure::LedgerEntry& row : ledger.entries) {
    row.claim.clear();
    for (const task::GuideClaim& claim : job_->entry().guide_claims)
      if (speaks_of(claim, row)) row.claim = claim.text();
    const auto& entries = search_->entries();
    const auto entry =
        std::find_if(entries.begin(), entries.end(), [&](const Entry& e) { return is_row_of(row, e.candidate); });
    if (entry == entries.end()) continue;
    const Candidate& c = entry->candidate;
    if (c.late) row.claim.clear();  // no guide promises a gain for the way back
    if (row.verdict == measure::LedgerVerdict::NotTried && !c.over_budget)
      row.consent = request_.allow.missing(c.consent);
    if (c.effect >= config::Effect::Optimisation && !c.ledger_only) {
      // The search compared times to the loss; the columns of speed are without what a sample is worth.
      const double worth = efficiency(c.values);
      row.predicted_efficiency = worth;
      if (row.predicted) {
        row.predicted_time_to_loss = row.predicted;
        row.predicted = *row.predicted / worth;
        if (row.predicted_interval)
          row.predicted_interval = {row.predicted_interval->low / worth, row.predicted_interval->high / worth};
      }
      if (row.add_one_in) row.add_one_in = scaled(*row.add_one_in, 1 / worth);
      if (row.leave_one_out) row.leave_one_out = scaled(*row.leave_one_out, 1 / worth);
      if (row.measured) row.measured = scaled(*row.measured, 1 / worth);
      const auto& time = certificate_ ? certificate_->time_to_loss : std::nullopt;
      if (row.in_best && time) {
        row.efficiency = time->efficiency;
        row.time_to_loss = time->ratio;
      }
    }
    const auto& own = row.leave_one_out ? row.leave_one_out : row.add_one_in;
    if (row.in_best && own && own->ratio < 1 && row.reason.empty())
      row.reason =
          fmt::format("kept although its own figure is {}: {}, and the gain was confirmed with it", gain_text(*own),
                      own->interval.high > 1 ? "a cost is not shown" : "others of the best rest on it");
    if (const double cost = c.values.contains(kCompilePath) ? pool_->compile_seconds(c.values) : 0;
        cost > 0 && own && row.reason.empty())
      row.reason = compile_cost_text(cost, own->ratio, seen_.bare_step_seconds());
  }
  if (!best_.empty() && certificate_ && certificate_->time_to_loss)
    ledger.time_to_loss = certificate_->time_to_loss->ratio;
}

std::vector<CertifyRow> Tuning::certify_named(const CertifyRequest& what) {
  jobs_.named = true;
  read_job();
  if (what.speed) {
    measure_machine();
    observe(std::nullopt);
  }
  if (what.companions)
    jobs_.complete = [this](const Setting& setting) { return with_companions(view_, setting); };
  else
    jobs_.complete = nullptr;  // what is named is judged as it is
  const QuietLog quiet;
  const auto loader = job_->build_loader(*task_, train::Job::Part::Train, {});
  const double batch = view_.bounded_by_length ? static_cast<double>(view_.samples) /
                                                     static_cast<double>(std::max<int64_t>(1, view_.steps_per_epoch))
                                               : static_cast<double>(view_.effective_batch());
  const double samples = samples_of_run(*job_, loader->steps_per_epoch(), batch);
  runs_ = std::make_unique<HeldOutRuns>(jobs_, plan_judged_run(*job_, *task_, {batch, samples, what.steps}));
  say(fmt::format("Judged on {}, at the end of {}.", runs_->run().held_out_words, runs_->run().schedule_words));
  std::vector<CertifyRow> rows;
  for (const auto& [setting, alike] : what.settings) {
    CertifyRow row{setting, {}, {}, {}};
    try {
      if (const auto stuck = stuck_companions(view_, setting); what.companions && !stuck.empty())
        throw ConfigError(fmt::format("{} cannot follow another batch", join(stuck, ", ")));
      EvidenceOptions options;
      options.consent = true;
      options.runs = runs_.get();
      options.paired.design.margin = request_.margin;
      options.paired.design.most_pairs = what.most_pairs;
      options.paired.target = request_.target;
      options.paired.samples_factor =
          static_cast<double>(step_batch(view_, setting).samples()) / static_cast<double>(view_.effective_batch());
      options.paired.longest = what.longest;
      options.paired.every_pair = what.every_pair;
      // By pairs, whatever its rows say that it changes.
      Candidate all{"named", setting};
      all.effect = alike ? config::Effect::Order : config::Effect::Optimisation;
      row.certificate = certify(jobs_, {all}, options).certificate;
      if (what.speed) {
        row.speed = confirming_blocks(setting, spent(), kSpeedBlocks);
        if (row.speed) set_speed(row.certificate, *row.speed, request_.target.has_value());
      }
    } catch (const PreemptedError&) {
      throw;
    } catch (const std::exception& error) {
      row.failure = error.what();
    }
    say(fmt::format("{}: {}", setting_text(setting),
                    row.failure.empty() ? fmt::format("{}. {}", measure::certificate_kind_name(row.certificate.kind),
                                                      row.certificate.reason)
                                        : row.failure));
    rows.push_back(std::move(row));
  }
  return rows;
}

}  // namespace redline::tune
