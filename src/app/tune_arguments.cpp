#include "app/tune_arguments.h"

#include <fmt/format.h>
#include <torch/version.h>

#include "app/version.h"
#include "core/error.h"
#include "core/log.h"
#include "core/strings.h"
#include "device/machine.h"

namespace redline::app {

namespace {

// "val_loss=5.0"; the metric must be the one that certificates are judged by.
std::optional<double> parse_target(const task::Registry& registry, const config::RequestSource& source,
                                   const std::string& text) {
  if (text.empty()) return std::nullopt;
  const std::string metric = train::Job::read(registry, source, device::read_machine_facts())->monitor_metric();
  const size_t equals = text.find('=');
  const auto value = equals == std::string::npos ? std::nullopt : parse_double(text.substr(equals + 1));
  if (!value || text.substr(0, equals) != metric)
    throw ConfigError(fmt::format(
        "--target takes the held-out loss that this task is judged by, as in {}=5.0, not '{}'.", metric, text));
  return value;
}

// The switches that a user would know again, by name, from and to; what follows from them is in the recipe.
std::vector<std::string> changed_settings(const measure::TuneCard& card) {
  std::vector<std::string> changed;
  for (const measure::LedgerEntry& entry : card.ledger.entries)
    if (entry.in_best) changed.push_back(fmt::format("{} {} -> {}", entry.field, entry.from, entry.to));
  return changed;
}

// The largest gain that waits for a word of the user; empty where there is none worth it.
std::string waiting_text(const measure::TuneCard& card) {
  const measure::LedgerEntry* best = nullptr;
  for (const measure::LedgerEntry& entry : card.ledger.entries) {
    const auto& gain = entry.predicted_time_to_loss ? entry.predicted_time_to_loss : entry.predicted;
    if (entry.consent.empty() || !gain || *gain < 1.05) continue;
    const auto& most = best == nullptr                ? std::optional<double>()
                       : best->predicted_time_to_loss ? best->predicted_time_to_loss
                                                      : best->predicted;
    if (best == nullptr || *gain > *most) best = &entry;
  }
  if (best == nullptr) return {};
  const double gain = best->predicted_time_to_loss ? *best->predicted_time_to_loss : *best->predicted;
  return fmt::format(" {} {} -> {} is predicted to bring {:+.0f} %, but needs your word: --allow {}.", best->field,
                     best->from, best->to, 100 * (gain - 1), best->consent);
}

}  // namespace

tune::Setting parse_setting(const std::string& text) {
  tune::Setting setting;
  for (const std::string& word : split(text, ' ')) {
    if (trim(word).empty()) continue;
    const size_t equals = word.find('=');
    if (equals == std::string::npos) throw ConfigError("--with takes \"key=value key=value\", not '" + text + "'.");
    setting[word.substr(0, equals)] = word.substr(equals + 1);
  }
  return setting;
}

void add_certificate_arguments(CLI::App& command, TuneArguments& arguments) {
  command.add_option("--margin", arguments.margin_percent,
                     "Percent of what the reference learns that a change may lose and still count as not worse");
  command.add_option(
      "--target", arguments.target,
      "The fastest way to a held-out loss, e.g. val_loss=5.0: time to it counts, not samples per second");
}

tune::TuneRequest make_tune_request(const task::Registry& registry, const config::RequestSource& source,
                                    const TuneArguments& arguments) {
  const auto budget = parse_seconds(arguments.budget);
  if (!budget || !(*budget > 0))
    throw ConfigError("A budget is a time such as 60s or 3m, not '" + arguments.budget + "'.");
  int64_t memory = 0;
  if (!arguments.memory.empty()) {
    const auto bytes = parse_bytes(arguments.memory);
    if (!bytes || *bytes == 0) throw ConfigError("--memory takes a size such as 8GiB, not '" + arguments.memory + "'.");
    memory = static_cast<int64_t>(*bytes);
  }
  if (!(arguments.margin_percent > 0 && arguments.margin_percent < 100))
    throw ConfigError("--margin is a share of the reference's progress in percent, above 0 and below 100.");
  if (!arguments.accept.empty() && arguments.accept != "not-shown")
    throw ConfigError("--accept takes not-shown, not '" + arguments.accept + "'.");
  std::string version = version_text();
  version = version.substr(0, version.find('\n'));
  return {registry,
          source,
          device::read_machine_facts(),
          *budget,
          tune::parse_allow(arguments.allow),
          memory,
          arguments.fresh,
          arguments.full,
          arguments.card,
          version + ", LibTorch " + TORCH_VERSION,
          arguments.margin_percent / 100,
          !arguments.accept.empty(),
          parse_target(registry, source, arguments.target),
          0.01,
          [](const std::string& text) { log_info(text); }};
}

config::RequestSource tuned_source(config::RequestSource source, const tune::TuneResult& result) {
  for (const std::string& word : doctor::setting_overrides(result.best)) source.tuned.push_back(word);
  source.tuned_by = result.card_path.string();
  return source;
}

std::string tune_summary(const tune::TuneResult& result) {
  const measure::Ledger& ledger = result.card.ledger;
  const char* how = result.from_card   ? "From the tune card, nothing was run: "
                    : result.rechecked ? "From a tune card, checked again on this machine: "
                                       : "";
  if (!ledger.best)
    return fmt::format(
               "{}{}nothing {} makes this job faster here ({:.1f} samples/s).", how,
               result.best.empty() ? "" : doctor::setting_text(result.best) + " fits the memory; ",
               ledger.bound_left.value_or(2) > 1.02 ? "that was tried within the budget" : "that may be changed",
               ledger.baseline_samples_per_second) +
           waiting_text(result.card);
  const auto& promised = result.card.promised_ratio;
  const std::vector<std::string> changed = changed_settings(result.card);
  std::string text = fmt::format(
      "{}{:.2f} times the speed ({:.1f} instead of {:.1f} samples/s; a fresh run should find {:.2f} to {:.2f})", how,
      ledger.best->ratio, ledger.best_samples_per_second, ledger.baseline_samples_per_second, promised.low,
      promised.high);
  if (ledger.time_to_loss)
    text += fmt::format(", {:.2f} times as fast to the reference's loss ({:.2f} to {:.2f})", ledger.time_to_loss->ratio,
                        ledger.time_to_loss->interval.low, ledger.time_to_loss->interval.high);
  if (changed.empty())
    text += ": " + doctor::setting_text(result.best) + ".";
  else
    text +=
        fmt::format(": {} setting{} changed, {}.", changed.size(), changed.size() == 1 ? "" : "s", join(changed, "; "));
  return text + waiting_text(result.card);
}

}  // namespace redline::app
