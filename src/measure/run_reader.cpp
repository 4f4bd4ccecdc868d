// Reads a run directory that may still be written to, or whose writer was killed: what is torn is dropped and named,
// the rest is kept.
#include <filesystem>

#include "core/error.h"
#include "core/file_ops.h"
#include "core/strings.h"
#include "measure/detail/steps_file.h"
#include "measure/record_lines.h"
#include "measure/run_record.h"

namespace redline::measure {
namespace {

std::string read_optional(const std::filesystem::path& path) {
  std::error_code ignored;
  return std::filesystem::is_regular_file(path, ignored) ? read_file(path) : std::string();
}

void take_warnings(RunRecord& record, std::vector<std::string>& warnings) {
  for (std::string& warning : warnings) record.warnings.push_back(std::move(warning));
}

}  // namespace

const FieldValue* Event::find(std::string_view name) const {
  for (const auto& [key, value] : fields) {
    if (key == name) return &value;
  }
  return nullptr;
}

RunRecord read_run(const std::filesystem::path& directory) {
  const std::string shown = "'" + printable(directory.string()) + "'";
  std::error_code ignored;
  if (!std::filesystem::is_directory(directory, ignored)) {
    throw DataError("The run directory " + shown + " does not exist; give the folder that --run-dir named.");
  }
  if (!has_run_record(directory)) {
    throw DataError(shown + " holds no run record (no steps.bin in it); give the folder that --run-dir named.");
  }
  RunRecord record;
  record.directory = directory;
  record.version = kRunRecordVersion;
  record.config_yaml = read_optional(directory / "config.resolved.yaml");
  record.machine_json = read_optional(directory / "machine.json");
  StepsContent steps = decode_steps(read_file(directory / "steps.bin"), "steps.bin");
  record.steps = without_repeats(steps.rows);
  take_warnings(record, steps.warnings);
  if (const std::string events = read_optional(directory / "events.jsonl"); !events.empty()) {
    LinesContent content = read_events(events, "events.jsonl", record.events);
    take_warnings(record, content.warnings);
  }
  if (const std::string metrics = read_optional(directory / "metrics.jsonl"); !metrics.empty()) {
    LinesContent content = read_metrics(metrics, "metrics.jsonl", record.metrics);
    take_warnings(record, content.warnings);
  }
  return record;
}

}  // namespace redline::measure
