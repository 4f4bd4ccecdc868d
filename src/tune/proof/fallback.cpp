#include "tune/proof/fallback.h"

#include <algorithm>
#include <map>

#include "tune/proof/evidence.h"

namespace redline::tune {

std::vector<std::vector<size_t>> parts_by_effect(std::span<const Contender> entries, std::span<const size_t> members) {
  std::map<config::Effect, std::vector<size_t>> parts;
  for (const size_t i : members)
    parts[std::clamp(entries[i].candidate.effect, config::Effect::Numerics, config::Effect::Optimisation)].push_back(i);
  std::vector<std::vector<size_t>> ordered;
  for (auto& [effect, part] : parts) ordered.push_back(std::move(part));
  return ordered;
}

bool within(std::span<const size_t> part, std::span<const size_t> whole) {
  return std::ranges::all_of(part, [&](size_t i) { return std::ranges::find(whole, i) != whole.end(); });
}

std::vector<size_t> next_best(std::span<const Contender> entries, std::span<const Rejection> rejected, bool last) {
  const Rejection& now = rejected.back();
  const auto is_batch = [&](size_t i) { return entries[i].candidate.group == "batch"; };
  const bool has_batch = std::any_of(now.members.begin(), now.members.end(), is_batch);
  const auto suspect = [&](size_t i) {
    if (now.reason == Rejection::Reason::DoesNotRun) return !has_batch || is_batch(i);
    return proved_step_by_step(entries[i].candidate) == (now.reason == Rejection::Reason::StepByStep);
  };
  std::vector<size_t> rest = now.members;
  if (last) {
    std::erase_if(rest, suspect);
    return rest;
  }
  std::optional<size_t> worst;
  for (const size_t i : now.members)
    if (suspect(i) && (!worst || entries[i].candidate.effect >= entries[*worst].candidate.effect)) worst = i;
  if (!worst) return {};
  std::erase(rest, *worst);
  const std::string& group = entries[*worst].candidate.group;
  const auto of_group = [&](size_t i) { return !group.empty() && entries[i].candidate.group == group; };
  const auto rounds = std::count_if(rejected.begin(), rejected.end(), [&](const Rejection& r) {
    return std::any_of(r.members.begin(), r.members.end(), of_group);
  });
  std::optional<size_t> other;
  for (size_t i = 0; i < entries.size() && rounds < 2; ++i) {
    if (!of_group(i) || i == *worst || !entries[i].better || entries[i].candidate.ledger_only) continue;
    if (!other || *entries[i].better > *entries[*other].better) other = i;
  }
  if (other) {
    std::vector<size_t> replaced = rest;
    replaced.push_back(*other);
    if (std::none_of(rejected.begin(), rejected.end(),
                     [&](const Rejection& r) { return within(r.members, replaced) && within(replaced, r.members); }))
      return replaced;
  }
  return rest;
}

}  // namespace redline::tune
