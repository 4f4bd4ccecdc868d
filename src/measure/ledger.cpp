// Verdict, derived figures and JSON of the ledger.
#include "measure/ledger.h"

#include <cmath>

#include "core/check.h"
#include "measure/detail/tune_json.h"

namespace redline::measure {
namespace {

constexpr LedgerVerdict kVerdicts[] = {LedgerVerdict::Faster,   LedgerVerdict::NoEffect,      LedgerVerdict::Slower,
                                       LedgerVerdict::TooNoisy, LedgerVerdict::NotMeasurable, LedgerVerdict::InCompany,
                                       LedgerVerdict::NotTried, LedgerVerdict::Failed};

detail::OrderedJson entry_json(const LedgerEntry& entry) {
  return {{"field", entry.field},
          {"from", entry.from},
          {"to", entry.to},
          {"effect", entry.effect},
          {"claim", entry.claim},
          {"predicted", detail::number_json(entry.predicted)},
          {"add_one_in", detail::ratio_json(entry.add_one_in)},
          {"leave_one_out", detail::ratio_json(entry.leave_one_out)},
          {"interaction", detail::number_json(entry.interaction())},
          {"prediction_error_points", detail::number_json(entry.prediction_error_points())},
          {"verdict", ledger_verdict_name(entry.verdict)},
          {"reason", entry.reason},
          {"in_best", entry.in_best}};
}

LedgerEntry entry_of(const detail::OrderedJson& json) {
  LedgerEntry entry;
  json.at("field").get_to(entry.field);
  json.at("from").get_to(entry.from);
  json.at("to").get_to(entry.to);
  json.at("effect").get_to(entry.effect);
  json.at("claim").get_to(entry.claim);
  entry.predicted = detail::number_from(json.at("predicted"));
  entry.add_one_in = detail::ratio_of(json.at("add_one_in"));
  entry.leave_one_out = detail::ratio_of(json.at("leave_one_out"));
  const auto word = json.at("verdict").get<std::string>();
  bool known = false;
  for (LedgerVerdict verdict : kVerdicts) {
    if (word == ledger_verdict_name(verdict)) {
      entry.verdict = verdict;
      known = true;
    }
  }
  if (!known) throw nlohmann::json::other_error::create(501, "unknown verdict '" + word + "'", nullptr);
  json.at("reason").get_to(entry.reason);
  json.at("in_best").get_to(entry.in_best);
  return entry;
}

}  // namespace

const char* ledger_verdict_name(LedgerVerdict verdict) {
  switch (verdict) {
    case LedgerVerdict::Faster:
      return "faster";
    case LedgerVerdict::NoEffect:
      return "no effect";
    case LedgerVerdict::Slower:
      return "slower here";
    case LedgerVerdict::TooNoisy:
      return "too noisy";
    case LedgerVerdict::NotMeasurable:
      return "not measurable here";
    case LedgerVerdict::InCompany:
      return "only in company";
    case LedgerVerdict::NotTried:
      return "not tried";
    case LedgerVerdict::Failed:
      return "failed";
  }
  return "?";
}

LedgerVerdict ledger_verdict(const RatioEstimate& estimate) {
  switch (judge(estimate)) {
    case Verdict::Faster:
      return LedgerVerdict::Faster;
    case Verdict::NoEffect:
      return LedgerVerdict::NoEffect;
    case Verdict::Slower:
      return LedgerVerdict::Slower;
    case Verdict::TooNoisy:
      return LedgerVerdict::TooNoisy;
  }
  return LedgerVerdict::TooNoisy;
}

std::optional<double> LedgerEntry::interaction() const {
  if (!add_one_in || !leave_one_out || add_one_in->ratio <= 0) return std::nullopt;
  return leave_one_out->ratio / add_one_in->ratio;
}

std::optional<double> LedgerEntry::prediction_error_points() const {
  if (!predicted || !add_one_in) return std::nullopt;
  return (*predicted - add_one_in->ratio) * 100;
}

std::optional<double> Ledger::median_prediction_error_points() const {
  std::vector<double> errors;
  for (const LedgerEntry& entry : entries) {
    if (const auto error = entry.prediction_error_points()) errors.push_back(std::abs(*error));
  }
  if (errors.empty()) return std::nullopt;
  return median(errors);
}

namespace detail {

OrderedJson ledger_json(const Ledger& ledger) {
  OrderedJson json = {{"format", "redline.ledger"}, {"version", kLedgerVersion}, {"objective", ledger.objective}};
  json["best"] = ratio_json(ledger.best);
  json["baseline_samples_per_second"] = number_json(ledger.baseline_samples_per_second);
  json["best_samples_per_second"] = number_json(ledger.best_samples_per_second);
  json["tuning_seconds"] = number_json(ledger.tuning_seconds);
  json["bound_left"] = number_json(ledger.bound_left);
  json["median_prediction_error_points"] = number_json(ledger.median_prediction_error_points());
  json["entries"] = OrderedJson::array();
  for (const LedgerEntry& entry : ledger.entries) json["entries"].push_back(entry_json(entry));
  return json;
}

Ledger ledger_of(const OrderedJson& json) {
  Ledger ledger;
  json.at("objective").get_to(ledger.objective);
  ledger.best = ratio_of(json.at("best"));
  ledger.baseline_samples_per_second = number_from(json.at("baseline_samples_per_second")).value_or(0);
  ledger.best_samples_per_second = number_from(json.at("best_samples_per_second")).value_or(0);
  ledger.tuning_seconds = number_from(json.at("tuning_seconds")).value_or(0);
  ledger.bound_left = number_from(json.at("bound_left"));
  for (const OrderedJson& entry : json.at("entries")) ledger.entries.push_back(entry_of(entry));
  return ledger;
}

}  // namespace detail

std::string ledger_to_json(const Ledger& ledger) { return detail::dump(detail::ledger_json(ledger)); }

Ledger ledger_from_json(const std::string& text, const std::string& name) {
  return detail::read_document(text, name, "redline.ledger", kLedgerVersion,
                               [](const detail::OrderedJson& json) { return detail::ledger_of(json); });
}

}  // namespace redline::measure
