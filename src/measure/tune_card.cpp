// Matching, break-even and JSON of the tune card. One list of fields per document serves writing and reading.
#include "measure/tune_card.h"

#include <cmath>
#include <limits>

#include "core/error.h"
#include "core/strings.h"
#include "measure/strict_json.h"

namespace redline::measure {
namespace {

using CardJson = StrictOrderedJson;

template <class T, class U>
concept Is = std::is_same_v<std::remove_const_t<T>, U>;

// Every list below: `fields(name, member)`; `later` for keys that older cards do not have, `derived` for what only
// readers of the file need, `word` for an enum by its name.
void visit(Is<TuneFingerprint> auto& print, auto& fields) {
  fields("model", print.model);
  fields("data", print.data);
  fields("machine", print.machine);
  fields("versions", print.versions);
  fields("request", print.request);
}

void visit(Is<Interval> auto& interval, auto& fields) {
  fields("low", interval.low);
  fields("high", interval.high);
}

void visit(Is<RatioEstimate> auto& estimate, auto& fields) {
  fields("ratio", estimate.ratio);
  fields("interval", estimate.interval);
  fields("blocks", estimate.blocks);
}

void visit(Is<BreakEven> auto& costs, auto& fields) {
  fields("tuning_seconds", costs.tuning_seconds);
  fields("compile_seconds", costs.compile_seconds);
  fields("baseline_samples_per_second", costs.baseline_samples_per_second);
  fields("best_samples_per_second", costs.best_samples_per_second);
  fields("samples_of_run", costs.samples_of_run);
  fields.later("samples_per_step", costs.samples_per_step);
  fields.later("baseline_spread", costs.baseline_spread);
  fields.derived("break_even_samples", [&] { return costs.samples(); });
}

void visit(Is<LargestBatch> auto& largest, auto& fields) {
  fields("rows", largest.rows);
  fields("peak_bytes", largest.peak_bytes);
  fields("limit_bytes", largest.limit_bytes);
  fields("time_ended", largest.time_ended);
}

void visit(Is<LedgerEntry> auto& entry, auto& fields) {
  fields("field", entry.field);
  fields("from", entry.from);
  fields("to", entry.to);
  fields("effect", entry.effect);
  fields("claim", entry.claim);
  fields("predicted", entry.predicted);
  fields("predicted_interval", entry.predicted_interval);
  fields("add_one_in", entry.add_one_in);
  fields("leave_one_out", entry.leave_one_out);
  fields("measured", entry.measured);
  fields.derived("interaction", [&] { return entry.interaction(); });
  fields.derived("prediction_error_points", [&] { return entry.prediction_error_points(); });
  fields.word("verdict", entry.verdict, ledger_verdict_name, LedgerVerdict::Failed);
  fields("reason", entry.reason);
  fields("in_best", entry.in_best);
  fields.later("consent", entry.consent);
  fields.later("predicted_efficiency", entry.predicted_efficiency);
  fields.later("efficiency", entry.efficiency);
  fields.later("predicted_time_to_loss", entry.predicted_time_to_loss);
  fields.later("time_to_loss", entry.time_to_loss);
}

void visit(Is<Ledger> auto& ledger, auto& fields) {
  fields.derived("format", [] { return "redline.ledger"; });
  fields.derived("version", [] { return kLedgerVersion; });
  fields("objective", ledger.objective);
  fields("best", ledger.best);
  fields("baseline_samples_per_second", ledger.baseline_samples_per_second);
  fields("best_samples_per_second", ledger.best_samples_per_second);
  fields("tuning_seconds", ledger.tuning_seconds);
  fields("bound_left", ledger.bound_left);
  fields.later("noise_scale", ledger.noise_scale);
  fields.later("time_to_loss", ledger.time_to_loss);
  fields.derived("median_prediction_error_points", [&] { return ledger.median_prediction_error_points(); });
  fields("entries", ledger.entries);
}

void visit(Is<CertificateCheck> auto& check, auto& fields) {
  fields("name", check.name);
  fields("difference", check.difference);
  fields("tolerance", check.tolerance);
  fields("tolerance_source", check.tolerance_source);
  fields("passed", check.passed);
}

void visit(Is<PairedEvidence> auto& paired, auto& fields) {
  fields("metric", paired.metric);
  fields("held_out", paired.held_out);
  fields("held_out_samples", paired.held_out_samples);
  fields("schedule", paired.schedule);
  fields("pairs", paired.pairs);
  fields("most_pairs", paired.most_pairs);
  fields("p", paired.p);
  fields("level", paired.level);
  fields("margin_share", paired.margin_share);
  fields("margin", paired.margin);
  fields("start", paired.start);
  fields("reference", paired.reference);
  fields("difference", paired.difference);
  fields("interval", paired.interval);
  fields("power", paired.power);
  fields("pairs_needed", paired.pairs_needed);
  fields("differences", paired.differences);
}

void visit(Is<TimeToLoss> auto& time, auto& fields) {
  fields("level", time.level);
  fields("reached", time.reached);
  fields("noise_scale", time.noise_scale);
  fields("predicted_efficiency", time.predicted_efficiency);
  fields("efficiency", time.efficiency);
  fields("predicted_ratio", time.predicted_ratio);
  fields("ratio", time.ratio);
}

void visit(Is<Certificate> auto& certificate, auto& fields) {
  fields.derived("format", [] { return "redline.certificate"; });
  fields.derived("version", [] { return kCertificateVersion; });
  fields.word("kind", certificate.kind, certificate_kind_name, CertificateKind::Different);
  fields.later("accept_not_shown", certificate.accept_not_shown);
  fields.derived("accepted", [&] { return certificate.accepted(); });
  fields("reason", certificate.reason);
  fields("reference_hash", certificate.reference_hash);
  fields("candidate_hash", certificate.candidate_hash);
  fields("effects", certificate.effects);
  fields("seed", certificate.seed);
  fields("steps", certificate.steps);
  fields("samples", certificate.samples);
  fields("consent", certificate.consent);
  fields("first_different_step", certificate.first_different_step);
  fields.later("paired", certificate.paired);
  fields.later("time_to_loss", certificate.time_to_loss);
  fields("reference_losses", certificate.reference_losses);
  fields("candidate_losses", certificate.candidate_losses);
  fields.later("curve_samples", certificate.curve_samples);
  fields("checks", certificate.checks);
}

void visit(Is<std::pair<std::string, std::string>> auto& value, auto& fields) {
  fields("field", value.first);
  fields("value", value.second);
}

void visit(Is<TuneCard> auto& card, auto& fields) {
  fields.derived("format", [] { return "redline.tune_card"; });
  fields.derived("version", [] { return kTuneCardVersion; });
  fields("created", card.created);
  fields("fingerprint", card.fingerprint);
  fields("values", card.values);
  fields("promised_ratio", card.promised_ratio);
  fields("peak_tensor_bytes", card.peak_tensor_bytes);
  fields.later("largest_batch", card.largest_batch);
  fields.later("budget_seconds", card.budget_seconds);
  fields.later("full_ledger", card.full_ledger);
  fields("break_even", card.break_even);
  fields("notes", card.notes);
  fields("ledger", card.ledger);
  fields("certificate", card.certificate);
}

struct Writer {
  CardJson json = CardJson::object();

  // Not-a-number and infinities as words.
  static CardJson value(double number) {
    if (std::isnan(number)) return "nan";
    if (std::isinf(number)) return number > 0 ? "inf" : "-inf";
    return number;
  }
  template <class T>
  static CardJson value(const std::optional<T>& held) {
    return held ? value(*held) : CardJson();
  }
  template <class T>
  static CardJson value(const std::vector<T>& list) {
    CardJson json = CardJson::array();
    for (const T& item : list) json.push_back(value(item));
    return json;
  }
  template <class T>
  static CardJson value(const T& held) {
    if constexpr (requires(Writer & fields) { visit(held, fields); }) {
      Writer inner;
      visit(held, inner);
      return inner.json;
    } else {
      return held;
    }
  }

  template <class T>
  void operator()(const char* name, const T& held) {
    json[name] = value(held);
  }
  template <class T>
  void later(const char* name, const T& held) {
    json[name] = value(held);
  }
  template <class Make>
  void derived(const char* name, const Make& make) {
    json[name] = value(make());
  }
  template <class E>
  void word(const char* name, E held, const char* (*text)(E), E /*last*/) {
    json[name] = text(held);
  }
};

// Throws the JSON library's errors: a missing key, a wrong type, an unknown word.
struct Reader {
  const CardJson& json;

  static void read(const CardJson& from, double& number) {
    number = from.is_string() ? parse_double(from.get<std::string>()).value_or(std::nan(""))
             : from.is_null() ? 0
                              : from.get<double>();
  }
  template <class T>
  static void read(const CardJson& from, std::optional<T>& held) {
    held.reset();
    if (!from.is_null()) read(from, held.emplace());
  }
  template <class T>
  static void read(const CardJson& from, std::vector<T>& list) {
    list.clear();
    for (const CardJson& item : from) read(item, list.emplace_back());
  }
  template <class T>
  static void read(const CardJson& from, T& held) {
    if constexpr (requires(Reader & fields) { visit(held, fields); }) {
      Reader inner{from};
      visit(held, inner);
    } else {
      from.get_to(held);
    }
  }

  template <class T>
  void operator()(const char* name, T& held) const {
    read(json.at(name), held);
  }
  template <class T>
  void later(const char* name, T& held) const {
    if (json.contains(name)) read(json.at(name), held);
  }
  template <class Make>
  void derived(const char* /*name*/, const Make& /*make*/) const {}
  template <class E>
  void word(const char* name, E& held, const char* (*text)(E), E last) const {
    const auto found = json.at(name).get<std::string>();
    for (int i = 0; i <= static_cast<int>(last); ++i)
      if (found == text(static_cast<E>(i))) return void(held = static_cast<E>(i));
    throw nlohmann::json::other_error::create(501, "unknown " + std::string(name) + " '" + found + "'", nullptr);
  }
};

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
  return Writer::value(card).dump(2, ' ', false, CardJson::error_handler_t::replace) + "\n";
}

TuneCard tune_card_from_json(const std::string& text, const std::string& name) {
  const std::string shown = "'" + printable(name) + "'";
  const auto no_card = [&](const std::string& why) {
    return DataError(shown + " is no redline.tune_card document: " + printable(why) + ".");
  };
  const CardJson json = CardJson::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object() || json.value("format", CardJson()) != "redline.tune_card")
    throw no_card("its format line is missing");
  if (const CardJson found = json.value("version", CardJson()); found != kTuneCardVersion)
    throw DataError(shown + " has version " + printable(found.dump()) + " of redline.tune_card, this redline reads " +
                    "version " + std::to_string(kTuneCardVersion) + "; make it again with this redline.");
  try {
    TuneCard card;
    Reader::read(json, card);
    return card;
  } catch (const nlohmann::json::exception& error) {
    throw no_card(error.what());
  }
}

}  // namespace redline::measure
