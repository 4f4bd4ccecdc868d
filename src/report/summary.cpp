#include <fmt/format.h>

#include "core/strings.h"
#include "measure/phases.h"
#include "report/page.h"

namespace redline::report {

std::string default_summary(const Page& page) {
  if (page.runs.empty()) return "There is nothing to report.";
  if (page.comparison) return page.comparison->sentence;
  const RunPart& last = page.runs.back();
  if (page.runs.size() > 1) {
    const double before = page.runs.front().seen.samples_per_second, after = last.seen.samples_per_second;
    return fmt::format("From {} to {}: {:.2f} -> {:.2f} samples/s ({:.2f} times).", page.runs.front().name, last.name,
                       before, after, before > 0 ? after / before : 0.0);
  }
  if (last.diagnosis)
    return fmt::format("{} (confidence {:.0f} %)", last.diagnosis->sentence, 100 * last.diagnosis->confidence);
  return fmt::format("{}: {} steps at {:.2f} samples/s, {:.1f} % of the time waiting for data.", last.name,
                     last.seen.steps, last.seen.samples_per_second, 100 * last.seen.phase(measure::Phase::Wait).share);
}

}  // namespace redline::report
