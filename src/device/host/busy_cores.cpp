// /proc/stat: proc(5). Field order: user nice system idle iowait irq softirq steal guest guest_nice; guest time is part
// of user time already.
#include "device/host/busy_cores.h"

#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <string>

#include "core/strings.h"
#include "core/time.h"
#include "device/host/proc_text.h"

namespace redline::device {

std::vector<int> allowed_core_numbers() {
  cpu_set_t set;
  CPU_ZERO(&set);
  std::vector<int> cores;
  if (sched_getaffinity(0, sizeof(set), &set) != 0) return cores;
  for (int core = 0; core < CPU_SETSIZE; ++core)
    if (CPU_ISSET(core, &set)) cores.push_back(core);
  return cores;
}

std::optional<CoreTicks> core_ticks(std::string_view proc_stat, const std::vector<int>& cores) {
  CoreTicks ticks;
  size_t found = 0;
  for (const std::string& line : split(std::string(proc_stat), '\n')) {
    if (!starts_with(line, "cpu") || starts_with(line, "cpu ")) continue;
    const std::vector<std::string> words = split(line, ' ');
    const auto core = parse_int(words[0].substr(3));
    if (!core || std::find(cores.begin(), cores.end(), static_cast<int>(*core)) == cores.end()) continue;
    constexpr size_t kNice = 2, kIdle = 4, kIoWait = 5, kSteal = 8;
    for (size_t field = 1; field <= kSteal && field < words.size(); ++field)
      if (field != kIdle && field != kIoWait) ticks.busy += static_cast<uint64_t>(parse_int(words[field]).value_or(0));
    if (words.size() > kNice) ticks.nice += static_cast<uint64_t>(parse_int(words[kNice]).value_or(0));
    if (words.size() > kSteal) ticks.stolen += static_cast<uint64_t>(parse_int(words[kSteal]).value_or(0));
    ++found;
  }
  if (cores.empty() || found != cores.size()) return std::nullopt;
  return ticks;
}

BusyCores::BusyCores()
    : cores_(allowed_core_numbers()),
      ticks_(core_ticks(proc_text("/proc/stat"), cores_)),
      wall_ns_(now_ns()),
      own_ns_(process_cpu_ns()) {}

double BusyCores::cores_left() const {
  const auto ticks = core_ticks(proc_text("/proc/stat"), cores_);
  const double all = static_cast<double>(cores_.size());
  const double seconds = seconds_between(wall_ns_, now_ns()), own = seconds_between(own_ns_, process_cpu_ns());
  if (!ticks || !ticks_ || ticks->busy < ticks_->busy || seconds <= 0) return all;
  const double busy = static_cast<double>(ticks->busy - ticks_->busy) / static_cast<double>(sysconf(_SC_CLK_TCK));
  return std::clamp(all - (busy - own) / seconds, 0.0, all);
}

}  // namespace redline::device
