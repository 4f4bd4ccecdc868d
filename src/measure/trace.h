// A picture of chosen steps for chrome://tracing and Perfetto: the main thread's phases under their step, and every
// worker's stages. Format: the Trace Event Format's JSON object form (complete events "X", metadata "M").
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "measure/spans.h"

namespace redline::measure {

// "steps=10..20" or "steps=10": the value of --trace. Throws ConfigError for anything else.
struct StepRange {
  int64_t first = 0, last = 0;
  bool contains(int64_t step) const { return first <= step && step <= last; }
};
StepRange parse_step_range(std::string_view text);

// `dropped`: spans that did not fit the log; noted in the file.
std::string chrome_trace_json(std::span<const Span> spans, int64_t dropped = 0);
void write_chrome_trace(const std::filesystem::path& path, std::span<const Span> spans, int64_t dropped = 0);

}  // namespace redline::measure
