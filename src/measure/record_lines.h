// events.jsonl and metrics.jsonl: one JSON object a line, the first line names format and version. Written with one
// write(2) each, so a kill leaves at most one line without its end, which the reader drops and a resumed writer cuts
// off.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "measure/run_record.h"

namespace redline::measure {

std::string lines_header(const char* format);  // {"format":"redline.events","version":1}\n
std::string event_line(const std::string& time, const std::string& kind, const FieldList& fields);
std::string metric_line(int64_t step, std::string_view name, double value);  // not-a-number and infinities as strings

struct LinesContent {
  int64_t good_bytes = 0;  // whole lines: where a writer continues
  std::vector<std::string> warnings;
};
// Each throws DataError for another format or version; lines that do not parse are warnings.
LinesContent read_events(std::string_view bytes, const std::string& name, std::vector<Event>& events);
// Later points win: a metric that is logged again at the same or an earlier step (after a resume) replaces what
// followed.
LinesContent read_metrics(std::string_view bytes, const std::string& name, std::vector<MetricPoint>& metrics);

// Exposed for its test: the plain JSON reading that read_metrics' fast path must equal. Nullopt when the line is no
// metric.
std::optional<MetricPoint> parse_metric_line(std::string_view line);
std::optional<MetricPoint> parse_metric_line_fast(std::string_view line);

}  // namespace redline::measure
