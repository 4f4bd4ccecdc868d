// Lines are ASCII, so a column is a byte. Writing to a terminal that went away must not end a training run: errors of
// write are ignored.
#include "measure/progress.h"

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <vector>

#include "core/check.h"
#include "core/log.h"
#include "core/strings.h"

namespace redline::measure {
namespace {

constexpr size_t kBarWidth = 20;

struct ProgressPart {
  int importance;  // smaller is kept longer
  std::string text;
};

double done_share(const ProgressState& state) {
  return state.total > 0 ? std::clamp(static_cast<double>(state.done) / static_cast<double>(state.total), 0.0, 1.0)
                         : 0.0;
}

std::string bar_text(double share) {
  const auto full = static_cast<size_t>(share * kBarWidth);
  return "[" + std::string(full, '#') + std::string(kBarWidth - full, '.') + "]";
}

std::string rate_text(double rate, const char* unit) {
  return rate >= 100 ? fmt::format("{:.0f} {}", rate, unit) : fmt::format("{:.3g} {}", rate, unit);
}

std::vector<ProgressPart> progress_parts(const ProgressState& state, bool bar) {
  std::vector<ProgressPart> parts;
  parts.push_back({2, printable(state.label)});
  if (state.total > 0) {
    // Rounded down: 100 % is said only when all is done.
    parts.push_back({0, fmt::format("{}%", static_cast<int>(done_share(state) * 100))});
    if (bar) parts.push_back({9, bar_text(done_share(state))});
    parts.push_back({1, fmt::format("{}/{}", state.done, state.total)});
  } else {
    parts.push_back({0, fmt::format("step {}", state.done)});
  }
  if (state.seconds_left) parts.push_back({3, format_seconds(*state.seconds_left) + " left"});
  if (state.samples_per_second) parts.push_back({5, rate_text(*state.samples_per_second, "samples/s")});
  if (state.steps_per_second) parts.push_back({7, rate_text(*state.steps_per_second, "steps/s")});
  if (state.loss) parts.push_back({4, fmt::format("loss {:.4g}", *state.loss)});
  if (state.data_wait_share) parts.push_back({6, fmt::format("wait {:.0f}%", *state.data_wait_share * 100)});
  if (state.process_bytes) parts.push_back({8, "process " + format_bytes(*state.process_bytes)});
  return parts;
}

size_t joined_width(const std::vector<ProgressPart>& parts) {
  size_t width = parts.empty() ? 0 : 2 * (parts.size() - 1);
  for (const ProgressPart& part : parts) width += part.text.size();
  return width;
}

int terminal_width(int fd) {
  winsize size{};
  if (ioctl(fd, TIOCGWINSZ, &size) == 0 && size.ws_col > 0) return size.ws_col;
  return 80;
}

bool is_terminal(int fd) {
  const char* term = std::getenv("TERM");
  return isatty(fd) != 0 && term != nullptr && std::strcmp(term, "dumb") != 0;
}

void put(int fd, const std::string& text) { (void)!::write(fd, text.data(), text.size()); }

// What the log's hooks, which are plain functions, clear and draw again.
struct DrawnLine {
  std::mutex mutex;
  int fd = -1;
  std::string text;
};
DrawnLine& drawn_line() {
  static DrawnLine line;
  return line;
}

constexpr const char* kClear = "\r\033[K";

void hide_progress() {
  DrawnLine& line = drawn_line();
  const std::lock_guard lock(line.mutex);
  if (line.fd >= 0 && !line.text.empty()) put(line.fd, kClear);
}

void show_progress() {
  DrawnLine& line = drawn_line();
  const std::lock_guard lock(line.mutex);
  if (line.fd >= 0 && !line.text.empty()) put(line.fd, line.text);
}

}  // namespace

std::string format_progress(const ProgressState& state, int width, bool bar) {
  std::vector<ProgressPart> parts = progress_parts(state, bar);
  const auto limit = width > 0 ? static_cast<size_t>(width) : SIZE_MAX;
  while (parts.size() > 1 && joined_width(parts) > limit) {
    const auto least = std::max_element(parts.begin(), parts.end(), [](const ProgressPart& a, const ProgressPart& b) {
      return a.importance < b.importance;
    });
    parts.erase(least);
  }
  std::string line;
  for (const ProgressPart& part : parts) line += (line.empty() ? "" : "  ") + part.text;
  if (line.size() > limit) line.resize(limit);
  return line;
}

struct ProgressLine::Impl {
  ProgressOptions options;
  bool terminal = false;
  std::optional<int64_t> drawn_ns;
  bool finished = false;

  void draw(const ProgressState& state, bool last) {
    if (!terminal) {
      put(options.fd, format_progress(state, 0, false) + "\n");
      return;
    }
    // One column stays free: a full line would wrap on some terminals and could not be cleared.
    const std::string text = format_progress(state, terminal_width(options.fd) - 1, true);
    DrawnLine& line = drawn_line();
    const std::lock_guard lock(line.mutex);
    line.fd = options.fd;
    put(options.fd, kClear + text + (last ? "\n" : ""));
    line.text = last ? std::string() : text;
  }
};

ProgressLine::ProgressLine(const ProgressOptions& options) : impl_(std::make_unique<Impl>()) {
  impl_->options = options;
  impl_->terminal = options.terminal.value_or(is_terminal(options.fd));
  if (impl_->terminal) set_log_hooks(&hide_progress, &show_progress);
}

ProgressLine::~ProgressLine() {
  if (!impl_->terminal) return;
  DrawnLine& line = drawn_line();
  {
    const std::lock_guard lock(line.mutex);
    if (!line.text.empty()) put(impl_->options.fd, "\n");
    line.text.clear();
    line.fd = -1;
  }
  set_log_hooks(nullptr, nullptr);
}

bool ProgressLine::update(const ProgressState& state, int64_t now_ns) {
  const double interval = impl_->terminal ? impl_->options.redraw_seconds : impl_->options.plain_line_seconds;
  if (impl_->drawn_ns && static_cast<double>(now_ns - *impl_->drawn_ns) < interval * 1e9) return false;
  impl_->drawn_ns = now_ns;
  impl_->draw(state, false);
  return true;
}

void ProgressLine::finish(const ProgressState& state) {
  if (impl_->finished) return;
  impl_->finished = true;
  impl_->draw(state, true);
}

}  // namespace redline::measure
