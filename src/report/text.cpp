// The report for a terminal: the same facts as the page, as tables and bars that fit the width.
#include <fmt/format.h>

#include <set>

#include <algorithm>

#include "core/strings.h"
#include "measure/phases.h"
#include "report/page.h"
#include "report/parts/wrap.h"
#include "report/tuned.h"

namespace redline::report {

namespace {

std::string phase_bars(const doctor::Observation& seen, int width) {
  std::string out;
  const int room = std::max(8, width - 34);
  for (size_t p = 0; p < measure::kNumPhases; ++p) {
    const doctor::PhaseSummary& phase = seen.phases[p];
    if (phase.seconds_per_step <= 0) continue;
    const int length = static_cast<int>(phase.share * room + 0.5);
    out += fmt::format("  {:<10} {:>9} {:>6.1f} %  {}\n", measure::phase_name(static_cast<measure::Phase>(p)),
                       format_seconds(phase.seconds_per_step), 100 * phase.share,
                       std::string(static_cast<size_t>(length), '#'));
  }
  return out;
}

std::string stage_line(const doctor::Observation& seen) {
  std::string out = "  loader (worker time per step):";
  for (size_t s = 0; s < measure::kNumStages; ++s)
    out += fmt::format(" {} {}{}", measure::stage_name(static_cast<measure::Stage>(s)),
                       format_seconds(seen.stage_seconds_per_step[s]), s + 1 < measure::kNumStages ? "," : "");
  return out;
}

// A change is worth its line from here on; below, it "cannot help".
constexpr double kWorthALine = 0.005;

std::string suggestion_line(const doctor::Candidate& s, int width) {
  const std::string changes =
      s.effect == config::Effect::Nothing ? "" : fmt::format(" Changes {}.", config::effect_name(s.effect));
  const measure::Interval interval = s.predicted_interval();
  std::string out = wrap_text(fmt::format("{:>+7.1f} % ({:+.0f} to {:+.0f})  {}", 100 * s.predicted_gain,
                                          100 * interval.low, 100 * interval.high, doctor::setting_text(s.values)),
                              width, "  ");
  return out + wrap_text(fmt::format("{}.{}", s.reason, changes), width, "          ");
}

// Of each group of values that exclude each other the best; the page and --json have them all.
std::string suggestions_text(const doctor::Diagnosis& diagnosis, int width) {
  std::string gains, costs, rest, unknown, not_tried;
  std::set<std::string> groups;
  for (const doctor::Candidate& s : diagnosis.suggestions) {
    if (!groups.insert(s.group).second) continue;
    if (s.predicted_gain >= kWorthALine)
      gains += suggestion_line(s, width);
    else if (s.predicted_gain <= -kWorthALine)
      costs += suggestion_line(s, width);
    else if (s.unpredicted && !s.not_tried.empty())
      not_tried += "\n" + wrap_text(fmt::format("Not worth a try: {}={}: {}.", s.field, s.to, s.not_tried), width);
    else
      (s.unpredicted ? unknown : rest) += fmt::format(", {}={}", s.field, s.to);
  }
  std::string out;
  if (!gains.empty()) out += "\nWould gain (predicted):\n" + gains;
  if (!rest.empty()) out += "\n" + wrap_text("Cannot help (less than 0.5 %): " + rest.substr(2) + ".", width);
  if (!unknown.empty())
    out += "\n" + wrap_text("No rule foresees (`redline tune` races them): " + unknown.substr(2) + ".", width);
  out += not_tried;
  if (!costs.empty()) out += "\nWould cost:\n" + costs;
  return out;
}

std::string diagnosis_text(const doctor::Diagnosis& diagnosis, int width, bool first_said) {
  std::string out;
  if (!first_said)
    out += wrap_text(fmt::format("{} (confidence {:.0f} %)", diagnosis.sentence, 100 * diagnosis.confidence), width);
  if (!diagnosis.cure.empty()) out += wrap_text("What to do: " + diagnosis.cure, width);
  if (!diagnosis.unseen.empty()) out += wrap_text("Not to be seen here: " + diagnosis.unseen + ".", width);
  if (!diagnosis.ceilings.empty()) out += "Ceilings, measured on the same samples with one part made free:\n";
  for (const doctor::Ceiling& ceiling : diagnosis.ceilings) out += wrap_item(ceiling.sentence, width);
  out += suggestions_text(diagnosis, width);
  if (!diagnosis.traps.empty()) out += "\n";
  for (const doctor::Trap& trap : diagnosis.traps) out += wrap_text("Note: " + trap.sentence, width);
  return out;
}

// What of a job in less than fp32 ran in fp32 all the same, and what it cost.
std::string fallen_text(const std::vector<doctor::OperatorLine>& operators, int width) {
  double share = 0;
  std::vector<std::string> named;
  for (const doctor::OperatorLine& line : operators) {
    if (!line.fell_back) continue;
    share += line.share;
    if (named.size() < 6 && line.share >= 0.005)
      named.push_back(fmt::format("{} {:.1f} %", printable(line.name), 100 * line.share));
  }
  if (named.empty()) return {};
  return wrap_text(
      fmt::format("Fell back to fp32: {:.0f} % of the operators' time ({}).", 100 * share, join(named, ", ")), width);
}

std::string operators_text(const std::vector<doctor::OperatorLine>& operators, int width) {
  if (operators.empty()) return {};
  const auto room = static_cast<size_t>(std::clamp(width - 46, 12, 48));
  std::string out = "Operators of one step, by their own time:\n";
  for (size_t i = 0; i < std::min<size_t>(12, operators.size()); ++i) {
    const doctor::OperatorLine& line = operators[i];
    out += fmt::format("  {:<{}} {:>9} {:>5.1f} % {:>7}{}\n", printable(line.name).substr(0, room), room,
                       format_seconds(line.seconds), 100 * line.share, fmt::format("x{}", line.calls),
                       line.share_of_peak >= 0 ? fmt::format("  {:.0f} % of peak", 100 * line.share_of_peak) : "");
  }
  return out + fallen_text(operators, width);
}

std::string ranks_text(const doctor::RankView& view, int width) {
  using measure::Phase;
  std::string out = fmt::format("  {:>5} {:>9} {:>9} | {:>9} {:>9} {:>9} {:>9}\n", "rank", "own work", "waits", "data",
                                "forward", "backward", "optimiser");
  constexpr size_t kMost = 16;
  for (size_t i = 0; i < std::min(kMost, view.ranks.size()); ++i) {
    const doctor::RankLine& line = view.ranks[i];
    const auto of = [&](Phase phase) { return format_seconds(line.phase_seconds[static_cast<size_t>(phase)]); };
    out += fmt::format("  {:>5} {:>9} {:>9} | {:>9} {:>9} {:>9} {:>9}\n", line.rank, format_seconds(line.own_seconds),
                       format_seconds(line.wait_seconds), of(Phase::Wait), of(Phase::Forward), of(Phase::Backward),
                       of(Phase::Optimiser));
  }
  if (view.ranks.size() > kMost) out += fmt::format("  ... and {} more\n", view.ranks.size() - kMost);
  for (const std::string& sentence : view.sentences) out += wrap_item(sentence, width);
  return out;
}

std::string watched_line(const doctor::Observation& seen) {
  std::string out;
  if (seen.cores_used >= 0) out += fmt::format("{:.2f} cores busy", seen.cores_used);
  if (seen.gpu_utilisation >= 0) out += fmt::format(", GPU busy {:.0f} % of the time", 100 * seen.gpu_utilisation);
  if (seen.measuring_seconds > 0 && seen.step_seconds > 0)
    out += fmt::format("{}measuring costs {:.3f} % of a step", out.empty() ? "" : ", ",
                       100 * seen.measuring_seconds / seen.step_seconds);
  return out;
}

}  // namespace

std::string render_text(const Page& page, int width) {
  width = std::clamp(width, 40, 160);
  std::string out = wrap_text(page.summary.empty() ? default_summary(page) : page.summary, width) + "\n";
  for (const RunPart& run : page.runs) {
    const doctor::Observation& seen = run.seen;
    out += wrap_text(
        fmt::format("{}: {} steps, {:.2f} samples/s, {:.2f} steps/s, step {}, padding {:.1f} %, peak tensor memory {}",
                    run.name, seen.steps, seen.samples_per_second, seen.steps_per_second(),
                    format_seconds(seen.step_seconds), 100 * seen.padding_share,
                    format_bytes(static_cast<uint64_t>(seen.peak_bytes))),
        width);
    out += phase_bars(seen, width) + wrap_text(trim(stage_line(seen)), width, "  ");
    if (const std::string line = watched_line(seen); !line.empty()) out += wrap_text(line, width, "  ");
    if (seen.surroundings)
      if (const std::string busy = doctor::busy_sentence(*seen.surroundings); !busy.empty())
        out += wrap_text(busy, width, "  ");
    out += "\n";
    if (run.ranks) out += ranks_text(*run.ranks, width) + "\n";
    if (!run.operators.empty()) out += operators_text(run.operators, width) + "\n";
    if (run.diagnosis)
      out += diagnosis_text(*run.diagnosis, width, page.runs.size() == 1 && page.summary.empty()) + "\n";
    if (run.card) out += tuned_text(*run.card, width) + "\n";
    for (const std::string& warning : run.record.warnings) out += wrap_text("record: " + warning, width);
  }
  return out;
}

}  // namespace redline::report
