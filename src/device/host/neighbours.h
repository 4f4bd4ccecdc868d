// Who else runs: the largest of the other processes by name, and what those use that give way to everybody
// (SCHED_IDLE), which the kernel's counts of busy cores do not tell from the rest. In a container with process numbers
// of its own, others are not to be seen.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <string_view>

namespace redline::device {

struct ProcessTicks {
  std::string name;
  uint64_t ticks = 0;
  bool gives_way = false;  // runs only where nobody else wants to
};
// From the text of /proc/PID/stat (proc(5)); none where it is not whole.
std::optional<ProcessTicks> process_ticks(std::string_view stat);

struct Neighbours {
  double yielding = 0;  // cores' worth used by those that give way
  std::string largest;  // of the others, with its number: "python3 (4711)"; empty where nobody used anything
  double largest_cores = 0;
};

// Looking takes microseconds for each process of the machine, so it looks less often the longer that takes: at most a
// thousandth of the time.
class NeighbourWatch {
 public:
  explicit NeighbourWatch(std::filesystem::path root) : root_(std::move(root)) {}
  // Between the last two looks; none before the second.
  const std::optional<Neighbours>& look(int64_t now_ns);

 private:
  std::filesystem::path root_;
  std::map<int64_t, uint64_t> ticks_;
  std::optional<Neighbours> seen_;
  int64_t looked_ns_ = 0, cost_ns_ = 0;
};

}  // namespace redline::device
