#include "app/tune_arguments.h"

#include <fmt/format.h>
#include <torch/version.h>

#include "app/version.h"
#include "core/error.h"
#include "core/log.h"
#include "core/strings.h"
#include "device/machine.h"

namespace redline::app {

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
        ledger.baseline_samples_per_second);
  const auto& promised = result.card.promised_ratio;
  return fmt::format(
      "{}{} gives {:.2f} times the speed ({:.1f} instead of {:.1f} samples/s; a fresh run should find "
      "{:.2f} to {:.2f}).",
      how, doctor::setting_text(result.best), ledger.best->ratio, ledger.best_samples_per_second,
      ledger.baseline_samples_per_second, promised.low, promised.high);
}

}  // namespace redline::app
