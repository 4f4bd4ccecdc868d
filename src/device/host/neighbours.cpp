#include "device/host/neighbours.h"

#include <sched.h>
#include <unistd.h>

#include "core/strings.h"
#include "core/time.h"
#include "device/host/proc_text.h"

namespace redline::device {

std::optional<ProcessTicks> process_ticks(std::string_view stat) {
  // A name may hold blanks and brackets, so the last bracket ends it; state is the third field.
  const size_t open = stat.find('('), close = stat.rfind(')');
  if (open == std::string_view::npos || close == std::string_view::npos || close < open) return std::nullopt;
  const std::vector<std::string> fields = split(trim(stat.substr(close + 1)), ' ');
  constexpr size_t kUser = 14 - 3, kSystem = 15 - 3, kPolicy = 41 - 3;
  if (fields.size() <= kPolicy) return std::nullopt;
  const auto user = parse_int(fields[kUser]), system = parse_int(fields[kSystem]), policy = parse_int(fields[kPolicy]);
  if (!user || !system || !policy || *user < 0 || *system < 0) return std::nullopt;
  return ProcessTicks{std::string(stat.substr(open + 1, close - open - 1)), static_cast<uint64_t>(*user + *system),
                      *policy == SCHED_IDLE};
}

const std::optional<Neighbours>& NeighbourWatch::look(int64_t now) {
  constexpr int64_t kMostOften = 200'000'000, kRarer = 1000;
  if (looked_ns_ > 0 && now - looked_ns_ < std::max(kMostOften, kRarer * cost_ns_)) return seen_;
  const int64_t begin_ns = now_ns();
  const auto own = static_cast<int64_t>(getpid());
  const double seconds = seconds_between(looked_ns_, now), per_second = static_cast<double>(sysconf(_SC_CLK_TCK));
  std::map<int64_t, uint64_t> ticks;
  Neighbours found;
  std::error_code error;
  for (std::filesystem::directory_iterator one(root_ / "proc", error), end; !error && one != end;
       one.increment(error)) {
    const auto number = parse_int(one->path().filename().string());
    if (!number || *number == own) continue;
    const auto process = process_ticks(proc_text(one->path() / "stat"));
    if (!process) continue;
    ticks[*number] = process->ticks;
    const auto before = ticks_.find(*number);
    if (before == ticks_.end() || process->ticks <= before->second || !(seconds > 0)) continue;
    const double cores = static_cast<double>(process->ticks - before->second) / per_second / seconds;
    if (process->gives_way) {
      found.yielding += cores;
    } else if (cores > found.largest_cores) {
      found.largest = process->name + " (" + std::to_string(*number) + ")";
      found.largest_cores = cores;
    }
  }
  if (looked_ns_ > 0) seen_ = std::move(found);
  ticks_ = std::move(ticks);
  looked_ns_ = now;
  cost_ns_ = now_ns() - begin_ns;
  return seen_;
}

}  // namespace redline::device
