#include "report/watch.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <utility>

#include "core/strings.h"

namespace redline::report {

using measure::Phase;

namespace {

constexpr double kSilent = 30;  // seconds without a step that are worth a word

std::string percent(double share) { return fmt::format("{:.0f} %", 100 * share); }

std::string progress_text(const WatchedRun& run) {
  std::string text =
      run.max_steps > 0 ? fmt::format("step {} of {}", run.step, run.max_steps) : fmt::format("step {}", run.step);
  if (const auto left = run.seconds_left()) text += ", " + format_seconds(*left) + " left";
  return text;
}

std::string state_text(const WatchedRun& run) {
  std::string text = run.state;
  if (run.state == "running" && run.seconds_since_written > kSilent)
    text += fmt::format(", no step for {}", format_seconds(run.seconds_since_written));
  if (!run.ended.empty() && run.state != "running") text += " (" + printable(run.ended) + ")";
  return text;
}

// Phases that took time, largest first.
std::vector<std::string> phase_words(const doctor::Observation& seen) {
  std::vector<std::pair<double, std::string>> found;
  for (size_t p = 0; p < measure::kNumPhases; ++p)
    if (seen.phases[p].share >= 0.005)
      found.emplace_back(seen.phases[p].share, std::string(measure::phase_name(static_cast<Phase>(p))));
  std::ranges::sort(found, std::greater<>());
  std::vector<std::string> words;
  for (const auto& [share, name] : found) words.push_back(name + " " + percent(share));
  return words;
}

std::vector<std::string> machine_words(const WatchedRun& run) {
  const doctor::Observation& seen = run.seen;
  std::vector<std::string> words = {"data wait " + percent(seen.phase(Phase::Wait).share)};
  if (seen.rss_bytes > 0) words.push_back("memory " + format_bytes(static_cast<uint64_t>(seen.rss_bytes)));
  if (seen.surroundings)
    words.push_back(fmt::format("cores {:.1f} of {:.0f}", seen.surroundings->own, seen.surroundings->cores));
  if (run.gpu_utilisation) words.push_back("GPU " + percent(*run.gpu_utilisation));
  if (run.gpu_bytes) words.push_back("GPU memory " + format_bytes(static_cast<uint64_t>(*run.gpu_bytes)));
  return words;
}

std::string disturbance_text(const doctor::Observation& seen) {
  if (!seen.surroundings) return "";
  const std::string busy = doctor::busy_sentence(*seen.surroundings);
  return busy.empty() ? "machine quiet" : busy;
}

std::string verdict_text(const WatchedRun& run) {
  if (!run.diagnosis) return "too few steps to judge";
  const doctor::Diagnosis& found = *run.diagnosis;
  if (found.limit == doctor::Limit::Unknown) return "cannot tell";
  std::string text = doctor::limit_name(found.limit);
  if (!found.detail.empty()) text += " (" + found.detail + ")";
  for (const doctor::LimitScore& score : found.scores)
    if (score.limit == found.limit && score.detail == found.detail)
      text += fmt::format(", without it {:+.0f} %", 100 * score.gain);
  return text;
}

// A word that is longer than the window is cut.
void add_line(std::vector<std::string>& lines, std::string line, size_t width) {
  if (line.size() > width) line.resize(width);
  if (!line.empty()) lines.push_back(std::move(line));
}

// Words beside each other on as many lines as they need; each line indented.
void add_words(std::vector<std::string>& lines, const std::vector<std::string>& words, size_t width,
               std::string_view between = "  ") {
  std::string line;
  for (const std::string& word : words) {
    if (!line.empty() && line.size() + between.size() + word.size() > width)
      add_line(lines, std::exchange(line, ""), width);
    line += (line.empty() ? std::string("  ") : std::string(between)) + word;
  }
  add_line(lines, std::move(line), width);
}

void add_text(std::vector<std::string>& lines, const std::string& text, size_t width) {
  if (!text.empty()) add_words(lines, split(text, ' '), width, " ");
}

}  // namespace

std::optional<double> WatchedRun::seconds_left() const {
  if (state != "running" || max_steps <= 0 || step >= max_steps || seen.step_seconds <= 0) return std::nullopt;
  return static_cast<double>(max_steps - step) * seen.step_seconds;
}

std::string sparkline(const std::vector<double>& values, size_t width, bool letters) {
  static const char* const kLetters[] = {"▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"};
  static const char* const kPlain[] = {"_", ".", ":", "-", "=", "+", "*", "#"};
  const size_t count = std::min(values.size(), width);
  if (count == 0) return "";
  const auto first = values.end() - static_cast<std::ptrdiff_t>(count);
  const double highest = *std::max_element(first, values.end());
  std::string out;
  for (auto it = first; it != values.end(); ++it) {
    const double share = highest > 0 ? std::clamp(*it / highest, 0.0, 1.0) : 0;
    const auto level = std::min<size_t>(7, static_cast<size_t>(8 * share));
    out += letters ? kLetters[level] : kPlain[level];
  }
  return out;
}

std::vector<std::string> watch_lines(const WatchedRun& run, int columns, bool letters) {
  const auto width = static_cast<size_t>(std::max(20, columns));
  std::vector<std::string> lines;
  // The end of a path says more than its begin.
  std::string name = printable(run.name);
  const std::string state = state_text(run);
  if (name.size() + 2 + state.size() > width) {
    const size_t room = width > state.size() + 8 ? width - state.size() - 5 : 3;
    name = "..." + name.substr(name.size() > room ? name.size() - room : 0);
  }
  add_line(lines, name + "  " + state, width);
  add_words(lines, {progress_text(run)}, width);
  std::vector<std::string> losses;
  if (run.loss) losses.push_back(fmt::format("loss {:.4g}", *run.loss));
  if (run.validation_loss) losses.push_back(fmt::format("val_loss {:.4g}", *run.validation_loss));
  const std::string speed = fmt::format("  {:.1f} samples/s ", run.seen.samples_per_second);
  if (!run.speeds.empty())
    lines.push_back(speed + sparkline(run.speeds, width > speed.size() ? width - speed.size() : 1, letters));
  add_words(lines, losses, width);
  if (run.seen.steps > 0) {
    add_words(lines, phase_words(run.seen), width);
    add_words(lines, machine_words(run), width);
    add_text(lines, disturbance_text(run.seen), width);
    add_text(lines, verdict_text(run), width);
  }
  return lines;
}

std::string watch_line(const WatchedRun& run) {
  std::string line = fmt::format("{}: {}, {}", printable(run.name), state_text(run), progress_text(run));
  if (run.seen.steps == 0) return line + ", no steps yet";
  line += fmt::format(", {:.1f} samples/s", run.seen.samples_per_second);
  if (run.loss) line += fmt::format(", loss {:.4g}", *run.loss);
  for (const std::string& word : machine_words(run)) line += ", " + word;
  if (run.seen.surroundings && run.seen.surroundings->disturbed > 0)
    line += fmt::format(", disturbed {}", percent(run.seen.surroundings->disturbed));
  return line + ", " + verdict_text(run);
}

}  // namespace redline::report
