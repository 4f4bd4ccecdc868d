// Times are microseconds from the first span with three decimals, so nanoseconds survive and large monotonic clocks
// lose nothing. Phases of one step never overlap (measure/step_clock.h), so they nest under the step's own event as
// viewers demand.
#include "measure/trace.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>

#include "core/error.h"
#include "core/file_ops.h"
#include "core/strings.h"

namespace redline::measure {
namespace {

constexpr int kProcess = 1;

std::string complete_event(std::string_view name, std::string_view category, int lane, int64_t begin_ns, int64_t end_ns,
                           int64_t origin_ns, int64_t step) {
  const int64_t start = begin_ns - origin_ns, duration = std::max<int64_t>(end_ns - begin_ns, 0);
  std::string args = step > 0 ? fmt::format("{{\"step\":{}}}", step) : "{}";
  return fmt::format(
      "{{\"name\":\"{}\",\"cat\":\"{}\",\"ph\":\"X\",\"ts\":{}.{:03d},\"dur\":{}.{:03d},\"pid\":{},\"tid\":{},\"args\":"
      "{}}}",
      name, category, start / 1000, start % 1000, duration / 1000, duration % 1000, kProcess, lane, args);
}

std::string name_event(std::string_view what, int lane, std::string_view name) {
  return fmt::format("{{\"name\":\"{}\",\"ph\":\"M\",\"pid\":{},\"tid\":{},\"args\":{{\"name\":\"{}\"}}}}", what,
                     kProcess, lane, name);
}

struct StepExtent {
  int64_t begin_ns = INT64_MAX, end_ns = INT64_MIN;
};

}  // namespace

StepRange parse_step_range(std::string_view text) {
  const auto wrong = [&]() -> ConfigError {
    return ConfigError("--trace expects steps=FIRST..LAST with 1 <= FIRST <= LAST, e.g. steps=10..20, but got '" +
                       printable(text) + "'.");
  };
  constexpr std::string_view kPrefix = "steps=";
  if (!text.starts_with(kPrefix)) throw wrong();
  const std::string_view range = text.substr(kPrefix.size());
  const size_t dots = range.find("..");
  const auto first = parse_int(range.substr(0, dots));
  const auto last = dots == std::string_view::npos ? first : parse_int(range.substr(dots + 2));
  if (!first || !last || *first < 1 || *last < *first) throw wrong();
  return {*first, *last};
}

std::string chrome_trace_json(std::span<const Span> spans, int64_t dropped) {
  int64_t origin = INT64_MAX;
  std::set<int> lanes = {0};
  std::map<int64_t, StepExtent> steps;
  for (const Span& span : spans) {
    origin = std::min(origin, span.begin_ns);
    lanes.insert(span.lane);
    if (span.is_stage) continue;
    StepExtent& extent = steps[span.step];
    extent.begin_ns = std::min(extent.begin_ns, span.begin_ns);
    extent.end_ns = std::max(extent.end_ns, span.end_ns);
  }
  std::string events = name_event("process_name", 0, "redline");
  for (int lane : lanes) {
    events += ",\n" + name_event("thread_name", lane, lane == 0 ? "main" : fmt::format("worker {}", lane - 1));
  }
  for (const auto& [step, extent] : steps) {
    events +=
        ",\n" + complete_event(fmt::format("step {}", step), "step", 0, extent.begin_ns, extent.end_ns, origin, step);
  }
  for (const Span& span : spans) {
    const std::string_view name =
        span.is_stage ? stage_name(static_cast<Stage>(span.id)) : phase_name(static_cast<Phase>(span.id));
    if (span.end_ns == span.begin_ns && !span.is_stage) continue;  // "other" of no length between two phases
    events += ",\n" + complete_event(name, span.is_stage ? "stage" : "phase", span.lane, span.begin_ns, span.end_ns,
                                     origin, span.step);
  }
  return fmt::format(
      "{{\"displayTimeUnit\":\"ms\",\"otherData\":{{\"format\":\"redline.trace\",\"version\":1,\"dropped_spans\":{}}},"
      "\n"
      "\"traceEvents\":[\n{}\n]}}\n",
      dropped, events);
}

void write_chrome_trace(const std::filesystem::path& path, std::span<const Span> spans, int64_t dropped) {
  write_file_atomic(path, chrome_trace_json(spans, dropped));
}

}  // namespace redline::measure
