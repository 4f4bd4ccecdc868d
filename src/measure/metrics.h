// The metric table: every number that is logged under a name is declared once, with type, unit and a sentence;
// docs/metrics.md is made from it. A task adds its own to a copy of the standard table.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace redline::measure {

enum class MetricType {
  Mean,     // averaged over the steps since the last log line
  Current,  // the value at this step
  Total,    // counted since the run started
};
const char* metric_type_name(MetricType type);

struct MetricInfo {
  std::string name;
  MetricType type = MetricType::Current;
  std::string unit;  // "s", "bytes", "share" (0..1), "1/s", "" for plain numbers
  std::string sentence;
};

class MetricTable {
 public:
  // A duplicate or a name that is not [a-z0-9_/] throws ConfigError: names become columns, tags and JSON keys.
  void add(MetricInfo metric);
  // Also finds validation's twin of a declared metric: "val_" + name.
  const MetricInfo* find(std::string_view name) const;
  const std::vector<MetricInfo>& all() const { return metrics_; }

 private:
  std::vector<MetricInfo> metrics_;
};

// What every run may log, whatever its task.
const MetricTable& standard_metrics();

// docs/metrics.md: one table per section, e.g. {"Every run", standard}, {"speech_ssl", the task's own}.
struct MetricSection {
  std::string title;
  std::vector<MetricInfo> metrics;
};
std::string metrics_markdown(const std::vector<MetricSection>& sections);

}  // namespace redline::measure
