// Cards: an answer that is known, one that must be checked again, and the one that is written.
#include <fmt/format.h>

#include <cmath>

#include "core/error.h"
#include "core/file_ops.h"
#include "core/log.h"
#include "core/strings.h"
#include "tune/cards/card_store.h"
#include "tune/search/promise.h"
#include "tune/tuning/tuning.h"

namespace redline::tune {

// Typed options that bind the tuner's hands. Where a run is written to, or what it is called, does not.
std::set<std::string> Tuning::kept() const {
  std::set<std::string> paths;
  for (const std::string& path : view_.pinned)
    if (!names_the_run(path)) paths.insert(path);
  return paths;
}

// A card from a shorter budget that had not finished is no answer to a longer one.
bool Tuning::answers_this_budget(const measure::TuneCard& card) const {
  if (request_.full_ledger && !card.full_ledger) return false;
  const bool finished = card.ledger.bound_left && *card.ledger.bound_left <= 1.02;
  return finished || card.budget_seconds >= request_.budget_seconds;
}

// Why the values of a card cannot be the job's; empty when they can.
std::string Tuning::card_refusal(const Setting& values) const {
  std::string why = setting_refusal(*job_, view_, request_.allow, values);
  if (!why.empty()) return why;
  try {
    const QuietLog quiet;
    train::Job::read(jobs_.registry, jobs_.with(values), jobs_.machine);
  } catch (const Error& error) {
    why = error.what();
  }
  return why;
}

std::optional<TuneResult> Tuning::from_card() {
  if (request_.fresh) return std::nullopt;
  auto card = load_card(card_path_);
  if (!card) return std::nullopt;
  const measure::CardMatch match = measure::match_fingerprint(card->fingerprint, print_);
  if (match != measure::CardMatch::Other) {
    if (const std::string why = card_refusal(card_setting(*card)); !why.empty()) {
      log_warning(fmt::format("The tune card {} is not used: {} The job is tuned anew.", card_path_.string(), why));
      return std::nullopt;
    }
  }
  switch (match) {
    case measure::CardMatch::Same:
      if (!answers_this_budget(*card)) return std::nullopt;
      return TuneResult{*card, true, false, card_path_, card_setting(*card)};
    case measure::CardMatch::OtherMachine:
      if (!answers_this_budget(*card)) {
        say(card_difference(card->fingerprint, print_) + " It was made with less time, so the job is tuned anew.");
        return std::nullopt;
      }
      say(card_difference(card->fingerprint, print_) + " Its answer is checked again here.");
      return recheck(*card);
    case measure::CardMatch::Other:
      say(card_difference(card->fingerprint, print_) + " The job is tuned anew.");
      return std::nullopt;
  }
  return std::nullopt;
}

// The values of a card from elsewhere, proved and raced against the reference: kept when they help here too. Only that
// is known here; the ledger stays the other machine's.
TuneResult Tuning::recheck(measure::TuneCard card) {
  measure_machine();
  observe(request_.budget_seconds);
  const Setting values = card_setting(card);
  if (values.empty() || !holds_here(card, values)) {
    if (!values.empty()) say("The card's settings do not hold on this machine; the job is tuned anew.");
    confirmed_.reset();
    certificate_.reset();
    rejected_.clear();
    runs_.reset();  // its settings were whole; the search's get companions
    return tune();
  }
  notes_.push_back("Tuned on another machine, proved and confirmed on this one; its ledger is the other machine's.");
  // No more was searched than there.
  TuneResult result = finish(std::move(card.ledger), combine(jobs_.base, values),
                             std::min(card.budget_seconds, request_.budget_seconds), card.full_ledger);
  result.rechecked = true;
  return result;
}

bool Tuning::holds_here(const measure::TuneCard& card, const Setting& values) {
  const auto complete = std::exchange(jobs_.complete, nullptr);  // a card's values are whole
  bool holds = false;
  try {
    // The strongest effect the other machine's proof was about.
    Candidate all{"card", values};
    if (card.certificate)
      for (const auto effect : {config::Effect::Numerics, config::Effect::Order, config::Effect::Optimisation})
        for (const std::string& name : card.certificate->effects)
          if (name == config::effect_name(effect)) all.effect = effect;
    const QuietLog quiet;
    const TrialPool::Journal journal(card_path_.string() + ".running", values);
    if (const auto known = pool_->failure_of(values)) throw Error(ExitCode::Failure, *known);
    plan_pairs();
    certificate_ = certify(jobs_, {all}, proof_options({all})).certificate;
    if (certificate_->accepted()) {
      peak_bytes_ = pool_->probe(values);
      best_ = values;
      confirmed_ = confirming_blocks(values, std::min(request_.budget_seconds, 30.0), 6);
      holds = confirmed_ && confirmed_->interval.low > 1 && !takes_longer();
    }
  } catch (const std::exception& error) {
    say(fmt::format("They fail here: {}", error.what()));
  }
  jobs_.complete = complete;
  stop_if_asked();
  if (!holds) best_.clear();
  return holds;
}

// `values`: all that differs from the user's job. The search had `budget_seconds`.
TuneResult Tuning::finish(measure::Ledger ledger, const Setting& values, double budget_seconds, bool full_ledger) {
  measure::TuneCard card;
  card.created = utc_timestamp();
  card.fingerprint = print_;
  for (const auto& [path, value] : values) card.values.emplace_back(path, value);
  card.ledger = std::move(ledger);
  const double before = reference_seconds_ > 0 ? 1 / reference_seconds_ : seen_.samples_per_second;
  const double after = best_.empty() || best_seconds_ <= 0 ? before : 1 / best_seconds_;
  card.ledger.baseline_samples_per_second = before;
  card.ledger.best_samples_per_second = after;
  card.ledger.tuning_seconds = spent();
  card.budget_seconds = budget_seconds;
  card.full_ledger = full_ledger;
  card.promised_ratio = {1, 1};
  card.ledger.best.reset();
  if (!best_.empty()) {
    card.ledger.best = confirmed_;
    card.promised_ratio = promised_interval(*confirmed_, confirming_reference_, confirming_best_, reference_seen_);
    card.certificate = certificate_;
    card.peak_tensor_bytes = peak_bytes_;
  } else {
    measure::Certificate same;
    same.kind = values.empty() ? measure::CertificateKind::Identical : measure::CertificateKind::WithinNoise;
    same.reason = values.empty() ? "Nothing was changed." : "The step is only cut into pieces that fit the memory.";
    if (!values.empty() && view_.batch_statistics) {
      same.kind = measure::CertificateKind::NotShown;
      same.reason =
          "The batch is smaller, as the memory limit asks; the reference does not fit, so nothing was compared.";
    }
    card.certificate = same;
    try {
      card.peak_tensor_bytes = pool_->probe({});
    } catch (const std::exception&) {  // on the edge of its memory: nothing is claimed
    }
  }
  card.largest_batch = largest_;
  const double samples = samples_of_run(*job_, view_.steps_per_epoch, seen_.samples_per_step);
  std::vector<double> logs;
  for (const double seconds : reference_seen_) logs.push_back(std::log(seconds));
  const double spread = logs.size() < 3 ? 0 : std::expm1(1.96 * measure::robust_spread(logs));
  const double compiling = best_.empty() ? 0 : std::min(spent(), pool_->compile_seconds(best_));
  card.break_even = {
      spent() - compiling, compiling, before, after, samples, seen_.samples_per_step * samples_factor(best_), spread};
  card.notes = notes_;
  write_file_atomic(card_path_, measure::tune_card_to_json(card));
  return {card, false, false, card_path_, values};
}

}  // namespace redline::tune
