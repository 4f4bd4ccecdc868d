#include "measure/run_glance.h"

#include <sys/stat.h>
#include <sys/sysmacros.h>

#include <algorithm>
#include <charconv>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "core/strings.h"
#include "measure/detail/steps_file.h"
#include "measure/record_lines.h"

namespace redline::measure {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kMetricsTail = 16 << 10;  // of metrics.jsonl
constexpr int64_t kMostConfig = 1 << 20;

// The last `bytes` of a file, or all of it; empty when it cannot be read.
std::string tail_of(const fs::path& path, int64_t bytes) {
  std::ifstream file(path, std::ios::binary);
  file.seekg(0, std::ios::end);
  const auto size = static_cast<int64_t>(file.tellg());
  if (!file || size <= 0) return "";
  const int64_t begin = std::max<int64_t>(0, size - bytes);
  std::string text(static_cast<size_t>(size - begin), '\0');
  file.seekg(begin);
  file.read(text.data(), static_cast<std::streamsize>(text.size()));
  text.resize(static_cast<size_t>(std::max<std::streamsize>(0, file.gcount())));
  return text;
}

std::vector<StepRow> last_rows(const fs::path& path) {
  std::error_code failed;
  const auto size = static_cast<int64_t>(fs::file_size(path, failed));
  const auto header = static_cast<int64_t>(kStepsHeaderBytes), row = static_cast<int64_t>(kStepRowBytes);
  if (failed || size < header + row) return {};
  const int64_t whole = (size - header) / row, torn = (size - header) % row;
  const int64_t wanted = std::min(whole, kGlanceRows);
  const std::string tail = tail_of(path, wanted * row + torn);
  if (static_cast<int64_t>(tail.size()) < wanted * row)
    return {};  // it grew meanwhile: the rows are no longer in place
  try {
    return without_repeats(decode_steps(encode_steps_header() + tail, "steps.bin").rows);
  } catch (const std::exception&) {
    return {};
  }
}

// "  max_steps: 30  # flag ..." -> "30"; quotes are taken off.
std::string value_after(std::string_view line, std::string_view key) {
  if (!starts_with(line, key)) return "";
  std::string_view rest = line.substr(key.size());
  if (const size_t comment = rest.find("  #"); comment != std::string_view::npos) rest = rest.substr(0, comment);
  std::string value = trim(rest);
  if (value.size() >= 2 && value.front() == '"' && value.back() == '"') value = value.substr(1, value.size() - 2);
  return value;
}

// The few lines of a config that we wrote ourselves that a list needs; reading it as YAML would take most of the time.
void read_config_lines(const fs::path& path, RunGlance& glance) {
  const std::string text = tail_of(path, kMostConfig);
  std::string_view section;
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find('\n', at), text.size());
    const std::string_view line = std::string_view(text).substr(at, end - at);
    at = end + 1;
    if (line.empty()) continue;
    if (line.front() != ' ') {
      section = line.substr(0, line.find(':'));
      if (section == "task") glance.task = value_after(line, "task:");
      if (section == "name") glance.name = value_after(line, "name:");
    } else if (section == "trainer" && line.size() > 2 && line[2] != ' ') {
      if (const std::string steps = value_after(line, "  max_steps:"); !steps.empty())
        glance.max_steps = parse_int(steps).value_or(-1);
      if (const std::string epochs = value_after(line, "  max_epochs:"); !epochs.empty())
        glance.max_epochs = parse_int(epochs).value_or(-1);
      if (const std::string precision = value_after(line, "  precision:"); !precision.empty())
        glance.precision = precision;
    }
  }
}

std::string head_of(const fs::path& path, int64_t bytes) {
  std::ifstream file(path, std::ios::binary);
  std::string text(static_cast<size_t>(bytes), '\0');
  file.read(text.data(), bytes);
  text.resize(static_cast<size_t>(std::max<std::streamsize>(0, file.gcount())));
  return text;
}

// Lines that are not whole or no events are left out.
std::vector<Event> events_in(const std::string& lines) {
  std::vector<Event> events;
  try {
    read_events(lines_header("redline.events") + lines, "events.jsonl", events);
  } catch (const std::exception&) {
    return {};
  }
  return events;
}

std::map<std::string, double> metrics_near_end(const fs::path& path) {
  std::map<std::string, double> found;
  std::string text = tail_of(path, kMetricsTail);
  if (static_cast<int64_t>(text.size()) == kMetricsTail) text.erase(0, text.find('\n') + 1);  // half a line
  for (const std::string& line : split(text, '\n')) {
    const auto point = parse_metric_line_fast(line);
    if (point) found[point->name] = point->value;
  }
  return found;
}

}  // namespace

const char* run_phase_name(RunPhase phase) {
  return phase == RunPhase::Running ? "running" : phase == RunPhase::Finished ? "finished" : "stopped";
}

double RunGlance::samples_per_second() const {
  double samples = 0, seconds = 0;
  for (const StepRow& row : rows) {
    samples += row.samples;
    seconds += static_cast<double>(row.wall_ns) * 1e-9;
  }
  return seconds > 0 ? samples / seconds : 0;
}

// A line of /proc/locks: "1: FLOCK  ADVISORY  WRITE 8404 fe:00:12345 0 EOF" (proc(5)).
HeldFiles HeldFiles::now() {
  HeldFiles held;
  std::ifstream locks("/proc/locks");
  for (std::string line; std::getline(locks, line);) {
    std::istringstream words(line);
    for (std::string word; words >> word;) {
      const std::vector<std::string> parts = split(word, ':');
      if (parts.size() != 3) continue;
      uint64_t major = 0, minor = 0, inode = 0;
      const auto read = [](const std::string& text, uint64_t& value, int base) {
        return std::from_chars(text.data(), text.data() + text.size(), value, base).ec == std::errc();
      };
      if (read(parts[0], major, 16) && read(parts[1], minor, 16) && read(parts[2], inode, 10))
        held.files.emplace(makedev(static_cast<unsigned>(major), static_cast<unsigned>(minor)), inode);
    }
  }
  return held;
}

bool HeldFiles::holds(const fs::path& path) const {
  struct stat status {};
  return ::stat(path.c_str(), &status) == 0 && files.contains({status.st_dev, status.st_ino});
}

std::optional<RunGlance> glance_at_run(const fs::path& directory, const HeldFiles& held) {
  if (!has_run_record(directory)) return std::nullopt;
  RunGlance glance;
  glance.directory = directory;
  const auto state = nlohmann::json::parse(tail_of(directory / "run.json", 64 << 10), nullptr, false);
  if (state.is_object() && state.contains("ended") && state["ended"].is_string()) glance.ended = state["ended"];
  glance.phase = held.holds(directory / "lock") ? RunPhase::Running
                 : glance.ended.empty()         ? RunPhase::Stopped
                                                : RunPhase::Finished;
  glance.rows = last_rows(directory / "steps.bin");
  if (!glance.rows.empty()) {
    glance.step = glance.rows.back().step;
    glance.epoch = glance.rows.back().epoch;
  }
  read_config_lines(directory / "config.resolved.yaml", glance);
  for (const auto& [name, value] : metrics_near_end(directory / "metrics.jsonl"))
    if (starts_with(name, "val_")) glance.validation[name] = value;
  std::error_code ignored;
  glance.written = fs::last_write_time(directory / "steps.bin", ignored);
  return glance;
}

EdgeEvents edge_events(const fs::path& directory, int64_t bytes) {
  const fs::path path = directory / "events.jsonl";
  std::string head = head_of(path, bytes / 4), tail = tail_of(path, bytes);
  const auto after_first_line = [](const std::string& text) {
    const size_t end = text.find('\n');
    return end == std::string::npos ? std::string() : text.substr(end + 1);
  };
  head.erase(head.rfind('\n') + 1);  // npos + 1 = 0: no whole line
  return {events_in(after_first_line(head)), events_in(after_first_line(tail))};
}

std::map<std::string, double> last_metrics(const fs::path& directory) {
  return metrics_near_end(directory / "metrics.jsonl");
}

std::vector<fs::path> find_runs(const fs::path& folder, int depth) {
  if (has_run_record(folder)) return {folder};
  std::vector<fs::path> runs, below;
  std::error_code failed;
  for (fs::directory_iterator it(folder, fs::directory_options::skip_permission_denied, failed), end;
       !failed && it != end; it.increment(failed)) {
    std::error_code ignored;
    if (it->is_directory(ignored) && !it->is_symlink(ignored)) below.push_back(it->path());
  }
  std::sort(below.begin(), below.end());
  for (const fs::path& path : below) {
    if (depth <= 0) break;
    for (fs::path& run : find_runs(path, depth - 1)) runs.push_back(std::move(run));
  }
  return runs;
}

}  // namespace redline::measure
