// Matching, break-even and JSON of the tune card.
#include "measure/tune_card.h"

#include <limits>

#include "measure/detail/tune_json.h"

namespace redline::measure {
namespace {

detail::OrderedJson fingerprint_json(const TuneFingerprint& print) {
  return {{"model", print.model},
          {"data", print.data},
          {"machine", print.machine},
          {"versions", print.versions},
          {"request", print.request}};
}

TuneFingerprint fingerprint_of(const detail::OrderedJson& json) {
  TuneFingerprint print;
  json.at("model").get_to(print.model);
  json.at("data").get_to(print.data);
  json.at("machine").get_to(print.machine);
  json.at("versions").get_to(print.versions);
  json.at("request").get_to(print.request);
  return print;
}

detail::OrderedJson break_even_json(const BreakEven& costs) {
  return {{"tuning_seconds", detail::number_json(costs.tuning_seconds)},
          {"compile_seconds", detail::number_json(costs.compile_seconds)},
          {"baseline_samples_per_second", detail::number_json(costs.baseline_samples_per_second)},
          {"best_samples_per_second", detail::number_json(costs.best_samples_per_second)},
          {"samples_of_run", detail::number_json(costs.samples_of_run)},
          {"samples_per_step", detail::number_json(costs.samples_per_step)},
          {"baseline_spread", detail::number_json(costs.baseline_spread)},
          {"break_even_samples", detail::number_json(costs.samples())}};
}

BreakEven break_even_of(const detail::OrderedJson& json) {
  BreakEven costs;
  costs.tuning_seconds = detail::number_from(json.at("tuning_seconds")).value_or(0);
  costs.compile_seconds = detail::number_from(json.at("compile_seconds")).value_or(0);
  costs.baseline_samples_per_second = detail::number_from(json.at("baseline_samples_per_second")).value_or(0);
  costs.best_samples_per_second = detail::number_from(json.at("best_samples_per_second")).value_or(0);
  costs.samples_of_run = detail::number_from(json.at("samples_of_run")).value_or(0);
  costs.samples_per_step = json.value("samples_per_step", 0.0);
  costs.baseline_spread = json.value("baseline_spread", 0.0);
  return costs;
}

double seconds_at(double samples, double rate) {
  return rate > 0 ? samples / rate : std::numeric_limits<double>::infinity();
}

}  // namespace

CardMatch match_fingerprint(const TuneFingerprint& card, const TuneFingerprint& now) {
  if (card == now) return CardMatch::Same;
  TuneFingerprint here = now;
  here.machine = card.machine;
  return card == here ? CardMatch::OtherMachine : CardMatch::Other;
}

std::optional<double> BreakEven::samples() const {
  const double saved_per_sample = seconds_at(1, baseline_samples_per_second) - seconds_at(1, best_samples_per_second);
  if (!(saved_per_sample > 0)) return std::nullopt;
  return (tuning_seconds + compile_seconds) / saved_per_sample;
}

double BreakEven::baseline_finish_seconds() const { return seconds_at(samples_of_run, baseline_samples_per_second); }

double BreakEven::best_finish_seconds() const {
  return tuning_seconds + compile_seconds + seconds_at(samples_of_run, best_samples_per_second);
}

std::string tune_card_to_json(const TuneCard& card) {
  detail::OrderedJson json = {
      {"format", "redline.tune_card"}, {"version", kTuneCardVersion}, {"created", card.created}};
  json["fingerprint"] = fingerprint_json(card.fingerprint);
  json["values"] = detail::OrderedJson::array();
  for (const auto& [field, value] : card.values) json["values"].push_back({{"field", field}, {"value", value}});
  json["promised_ratio"] = detail::interval_json(card.promised_ratio);
  json["peak_tensor_bytes"] = card.peak_tensor_bytes;
  json["largest_batch"] = nullptr;
  if (const auto& largest = card.largest_batch)
    json["largest_batch"] = {{"rows", largest->rows},
                             {"peak_bytes", largest->peak_bytes},
                             {"limit_bytes", largest->limit_bytes},
                             {"time_ended", largest->time_ended}};
  json["budget_seconds"] = card.budget_seconds;
  json["full_ledger"] = card.full_ledger;
  json["break_even"] = break_even_json(card.break_even);
  json["notes"] = card.notes;
  json["ledger"] = detail::ledger_json(card.ledger);
  json["certificate"] = card.certificate ? detail::certificate_json(*card.certificate) : detail::OrderedJson();
  return detail::dump(json);
}

TuneCard tune_card_from_json(const std::string& text, const std::string& name) {
  return detail::read_document(text, name, "redline.tune_card", kTuneCardVersion, [](const detail::OrderedJson& json) {
    TuneCard card;
    json.at("created").get_to(card.created);
    card.fingerprint = fingerprint_of(json.at("fingerprint"));
    for (const auto& entry : json.at("values")) {
      card.values.emplace_back(entry.at("field").get<std::string>(), entry.at("value").get<std::string>());
    }
    card.promised_ratio = detail::interval_of(json.at("promised_ratio"));
    json.at("peak_tensor_bytes").get_to(card.peak_tensor_bytes);
    if (json.contains("largest_batch") && !json.at("largest_batch").is_null()) {
      const auto& largest = json.at("largest_batch");
      card.largest_batch = {largest.at("rows"), largest.at("peak_bytes"), largest.at("limit_bytes"),
                            largest.at("time_ended")};
    }
    card.budget_seconds = json.value("budget_seconds", 0.0);
    card.full_ledger = json.value("full_ledger", false);
    card.break_even = break_even_of(json.at("break_even"));
    json.at("notes").get_to(card.notes);
    card.ledger = detail::ledger_of(json.at("ledger"));
    if (!json.at("certificate").is_null()) card.certificate = detail::certificate_of(json.at("certificate"));
    return card;
  });
}

}  // namespace redline::measure
