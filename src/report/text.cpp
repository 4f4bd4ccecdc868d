// The report for a terminal: the same facts as the page, as tables and bars that fit the width.
#include <fmt/format.h>

#include <algorithm>

#include "core/strings.h"
#include "measure/phases.h"
#include "report/page.h"
#include "report/tuned.h"

namespace redline::report {

namespace {

std::string wrap_text(const std::string& text, int width, const std::string& indent = "") {
  std::string out, line = indent;
  for (const std::string& word : split(printable(text), ' ')) {
    if (static_cast<int>(line.size() + word.size()) + 1 > width && line.size() > indent.size()) {
      out += line + "\n";
      line = indent;
    }
    line += (line.size() > indent.size() ? " " : "") + word;
  }
  return out + line + "\n";
}

std::string phase_bars(const doctor::Observation& seen, int width) {
  std::string out;
  const int room = std::max(8, width - 34);
  for (size_t p = 0; p < measure::kNumPhases; ++p) {
    const doctor::PhaseSummary& phase = seen.phases[p];
    if (phase.occurrences == 0 && phase.share < 0.0005) continue;
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

std::string diagnosis_text(const doctor::Diagnosis& diagnosis, int width) {
  std::string out =
      wrap_text(fmt::format("{} (confidence {:.0f} %)", diagnosis.sentence, 100 * diagnosis.confidence), width);
  for (const doctor::Ceiling& ceiling : diagnosis.ceilings) out += wrap_text("- " + ceiling.sentence, width, "  ");
  if (!diagnosis.suggestions.empty()) out += "\nWhat a change would gain (predicted):\n";
  for (size_t i = 0; i < std::min<size_t>(8, diagnosis.suggestions.size()); ++i) {
    const doctor::Suggestion& s = diagnosis.suggestions[i];
    out += wrap_text(fmt::format("{:+.1f} %  {}={}  ({}; changes {})", 100 * s.predicted_gain, s.option, s.value,
                                 s.reason, config::effect_name(s.effect)),
                     width, "  ");
  }
  for (const doctor::Trap& trap : diagnosis.traps) out += wrap_text("Note: " + trap.sentence, width);
  return out;
}

}  // namespace

std::string render_text(const Page& page, int width) {
  width = std::clamp(width, 40, 160);
  std::string out = wrap_text(page.summary.empty() ? default_summary(page) : page.summary, width) + "\n";
  for (const RunPart& run : page.runs) {
    const doctor::Observation& seen = run.seen;
    out += wrap_text(
        fmt::format("{}: {} steps, {:.2f} samples/s, {:.2f} iterations/s, step {}, padding {:.1f} %, peak memory {}",
                    run.name, seen.steps, seen.samples_per_second, seen.iterations_per_second,
                    format_seconds(seen.step_seconds), 100 * seen.padding_share,
                    format_bytes(static_cast<uint64_t>(seen.peak_bytes))),
        width);
    out += phase_bars(seen, width) + wrap_text(trim(stage_line(seen)), width, "  ") + "\n";
    if (run.diagnosis) out += diagnosis_text(*run.diagnosis, width) + "\n";
    if (run.card) out += tuned_text(*run.card, width) + "\n";
    for (const std::string& warning : run.record.warnings) out += wrap_text("record: " + warning, width);
  }
  return out;
}

}  // namespace redline::report
