#include "tune/search/candidates.h"

#include <fmt/format.h>

#include <algorithm>

#include "core/error.h"
#include "core/precision.h"
#include "core/strings.h"
#include "device/machine.h"
#include "tune/search/companions.h"

namespace redline::tune {

using config::Effect;

namespace {

double rate_of(const MachineFacts& machine, const std::string& precision) {
  return matrix_gflops(machine, parse_precision(precision).value_or(Precision::Fp32));
}

const char* what_changes(Effect consent) {
  switch (consent) {
    case Effect::Numerics:
      return "numbers beyond rounding";
    case Effect::Order:
      return "the order of samples";
    default:
      return "the optimisation";
  }
}

}  // namespace

std::string Allow::missing(Effect consent) const {
  if (consent >= Effect::Optimisation && !optimisation) return "optimisation";
  if (consent == Effect::Order && !order) return "order";
  return consent == Effect::Numerics && !numerics ? "numerics" : "";
}

Allow parse_allow(const std::string& text) {
  Allow allow;
  for (const std::string& raw : split(text, ',')) {
    const std::string word = trim(raw);
    if (word.empty()) continue;
    if (word == "numerics")
      allow.numerics = true;
    else if (word == "order")
      allow.order = true;
    else if (word == "optimisation" || word == "optimization")
      allow.optimisation = true;
    else
      throw ConfigError("--allow takes numerics, order and optimisation (separated by commas), not '" + word + "'.");
  }
  return allow;
}

std::vector<Candidate> make_candidates(const JobView& job, const doctor::Observation& seen, const MachineFacts& machine,
                                       const Allow& allow, const doctor::PlanModel& plans, double cadence_share) {
  std::vector<Candidate> all = doctor::find_candidates(job, seen, machine, plans, {}, cadence_share);
  std::erase_if(all, [&](const Candidate& c) {
    return std::any_of(c.values.begin(), c.values.end(),
                       [&](const auto& value) { return job.pinned.count(value.first) != 0; });
  });
  for (Candidate& c : all) {
    if (!c.not_tried.empty()) continue;
    if (const std::string word = allow.missing(c.consent); !word.empty())
      c.not_tried = fmt::format("it changes {}; --allow {} lets it be tried", what_changes(c.consent), word);
    else if (const auto stuck = stuck_companions(job, c.values); !stuck.empty())
      c.not_tried = fmt::format("{} cannot follow another batch", join(stuck, ", "));
    else if (const auto typed = typed_companions(job, c.values); !typed.empty())
      c.not_tried = fmt::format("it would change {}, which was typed and is kept", join(typed, ", "));
  }
  return all;
}

std::optional<Setting> larger_pieces(const JobView& job) {
  if (job.bounded_by_length) return std::nullopt;
  const int64_t rows = 4 * (job.micro_batch_size > 0 ? std::min(job.micro_batch_size, job.batch_size) : job.batch_size);
  const int64_t batch = std::max(job.batch_size, rows);
  return Setting{{job.path("batch"), std::to_string(batch)},
                 {job.path("micro_batch"), std::to_string(rows)},
                 {job.path("accumulation"), std::to_string(std::max<int64_t>(1, job.effective_batch() / batch))}};
}

std::optional<Setting> in_buckets(const JobView& job, const Allow& allow, const Setting& setting) {
  const config::SearchDimension* const option = job.switch_of("buckets");
  if (!allow.order || job.buckets || !job.ragged || job.bounded_by_length || !job.computes_padding ||
      option == nullptr || option->tried.empty())
    return std::nullopt;
  return combine(setting, {{job.path("bucketing"), "true"}, {option->path, option->tried.back()}});
}

std::optional<int> other_threads(const JobView& job, const MachineFacts& machine) {
  if (machine.allowed_cpus < 2) return std::nullopt;
  return job.threads > 1 ? 1 : machine.allowed_cpus;
}

std::optional<Setting> other_precision(const JobView& job, const MachineFacts& machine, const Allow& allow) {
  const config::SearchDimension* const option = job.switch_of("precision");
  if (option == nullptr || !allow.numerics || job.pinned.count(option->path) != 0) return std::nullopt;
  if (rate_of(machine, job.precision) <= 0) {  // not measured: the units must do
    const std::string units = precision_name(Precision::Bf16Mixed);
    if (job.precision == units || !device::has_bf16_units(machine)) return std::nullopt;
    return doctor::precision_setting(job, units);
  }
  std::string best;
  for (const std::string& tried : option->tried)
    if (tried != job.precision && (best.empty() || rate_of(machine, tried) > rate_of(machine, best))) best = tried;
  // Where matrix products are much slower, nothing around them makes up for it.
  if (best.empty() || rate_of(machine, best) < 0.7 * rate_of(machine, job.precision)) return std::nullopt;
  return doctor::precision_setting(job, best);
}

}  // namespace redline::tune
