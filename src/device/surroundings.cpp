// Formats: proc(5) for /proc/stat and schedstat; Documentation/accounting/psi.rst and admin-guide/cgroup-v2.rst of the
// kernel for pressure and cpu.stat. Of version 1, cpu.stat counts in nanoseconds.
#include "device/surroundings.h"

#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>

#include "core/strings.h"
#include "core/time.h"
#include "device/gpu_monitor.h"
#include "device/host/busy_cores.h"
#include "device/host/cgroup.h"
#include "device/host/heartbeat.h"
#include "device/host/neighbours.h"
#include "device/host/proc_text.h"

namespace redline::device {

namespace {

// "some avg10=0.00 avg60=0.00 avg300=0.00 total=12345" in microseconds.
std::optional<int64_t> stalled_ns(const std::string& text) {
  for (const std::string& line : split(text, '\n')) {
    if (!starts_with(line, "some ")) continue;
    const auto at = line.find("total=");
    if (at == std::string::npos) return std::nullopt;
    const auto microseconds = parse_int(trim(line.substr(at + 6)));
    if (!microseconds) return std::nullopt;
    return 1000 * *microseconds;
  }
  return std::nullopt;
}

// Of all living threads; one that ends takes its wait with it.
std::optional<int64_t> waited_ns(const std::filesystem::path& tasks) {
  std::optional<int64_t> sum;
  std::error_code error;
  for (std::filesystem::directory_iterator one(tasks, error), end; !error && one != end; one.increment(error)) {
    const std::vector<std::string> words = split(trim(proc_text(one->path() / "schedstat")), ' ');
    if (words.size() < 2) continue;
    if (const auto wait = parse_int(words[1])) sum = sum.value_or(0) + *wait;
  }
  return sum;
}

std::optional<int64_t> as_signed(std::optional<uint64_t> value, int64_t times = 1) {
  if (!value) return std::nullopt;
  return static_cast<int64_t>(*value) * times;
}

}  // namespace

double measure_gigahertz() {
  constexpr int kProducts = 4000, kTries = 3;
  constexpr double kCycles = 3;
  int64_t best_ns = INT64_MAX;
  uint64_t value = 3;
  for (int i = 0; i < kTries; ++i) {  // the shortest: a core that was taken away meanwhile looks slow
    const int64_t begin_ns = now_ns();
    for (int n = 0; n < kProducts; ++n) {
      value *= 0x9E3779B97F4A7C15;     // no shift or sum makes it
      asm volatile("" : "+r"(value));  // each product is made, in order
    }
    best_ns = std::min(best_ns, now_ns() - begin_ns);
  }
  return best_ns > 0 ? kCycles * kProducts / static_cast<double>(best_ns) : 0;
}

SurroundingsReader::~SurroundingsReader() = default;

void SurroundingsReader::watch_stops() {
  if (!heartbeat_) heartbeat_ = std::make_unique<Heartbeat>();
}

void SurroundingsReader::watch_gpus() {
  if (!gpus_) gpus_ = GpuMonitor::open();
}

SurroundingsReader::SurroundingsReader(std::filesystem::path root)
    : root_(std::move(root)),
      cores_(allowed_core_numbers()),
      group_(own_cgroup_folder("", root_)),
      cpu_group_(own_cgroup_folder("cpu", root_)),
      neighbours_(std::make_unique<NeighbourWatch>(root_)) {}

// Its own group's where the kernel keeps one, else the machine's.
std::optional<int64_t> SurroundingsReader::pressure(const char* name) const {
  if (group_)
    if (const auto own = stalled_ns(proc_text(*group_ / (std::string(name) + ".pressure")))) return own;
  return stalled_ns(proc_text(root_ / "proc/pressure" / name));
}

SurroundingsCounts SurroundingsReader::read() const {
  SurroundingsCounts counts;
  // First and last: what is read here is no reading of the job's.
  const std::string io = proc_text(root_ / "proc/self/io");
  counts.cores = static_cast<int>(cores_.size());
  if (const auto ticks = core_ticks(proc_text(root_ / "proc/stat"), cores_)) {
    const auto per_second = static_cast<double>(sysconf(_SC_CLK_TCK));
    // What has a low priority gives way, unless this process has one too.
    const bool low = getpriority(PRIO_PROCESS, 0) > 0;
    counts.busy_seconds = static_cast<double>(ticks->busy - (low ? 0 : ticks->nice)) / per_second;
    counts.stolen_seconds = static_cast<double>(ticks->stolen) / per_second;
  }
  counts.run_wait_ns = waited_ns(root_ / "proc/self/task");
  if (group_) counts.throttled_ns = as_signed(proc_field(proc_text(*group_ / "cpu.stat"), "throttled_usec"), 1000);
  if (!counts.throttled_ns && cpu_group_)
    counts.throttled_ns = as_signed(proc_field(proc_text(*cpu_group_ / "cpu.stat"), "throttled_time"));
  counts.cpu_pressure_ns = pressure("cpu");
  counts.memory_pressure_ns = pressure("memory");
  counts.io_pressure_ns = pressure("io");
  const std::string memory = proc_text(root_ / "proc/vmstat");
  if (const auto in = proc_field(memory, "pswpin"), out = proc_field(memory, "pswpout"); in && out)
    counts.swapped_pages = static_cast<int64_t>(*in + *out);
  if (const auto in = proc_field(memory, "pgpgin"), out = proc_field(memory, "pgpgout"),
      read = proc_field(io, "read_bytes"), written = proc_field(io, "write_bytes");
      in && out && read && written)
    counts.others_disk_bytes = static_cast<int64_t>(1024 * (*in + *out)) - static_cast<int64_t>(*read + *written);
  counts.read_calls = as_signed(proc_field(io, "syscr"));
  counts.read_bytes = as_signed(proc_field(io, "rchar"));
  if (counts.read_calls && counts.read_bytes) {
    const std::string then = proc_text(root_ / "proc/self/io");
    const int64_t calls = *counts.read_calls, bytes = *counts.read_bytes;
    *counts.read_calls -= own_calls_;
    *counts.read_bytes -= own_bytes_;
    own_calls_ += as_signed(proc_field(then, "syscr")).value_or(calls) - calls;
    own_bytes_ += as_signed(proc_field(then, "rchar")).value_or(bytes) - bytes;
  }
  counts.disk_read_bytes = as_signed(proc_field(io, "read_bytes"));
  if (heartbeat_) counts.stopped_ns = heartbeat_->stopped_ns();
  counts.gigahertz = measure_gigahertz();
  if (const auto& found = neighbours_->look(now_ns())) {
    counts.yielding_cores = found->yielding;
    counts.neighbour = found->largest;
    counts.neighbour_cores = found->largest_cores;
  }
  constexpr int64_t kGpusEveryNs = 5'000'000'000;  // what a driver takes to answer is not known here
  if (gpus_ && now_ns() - gpus_read_ns_ >= kGpusEveryNs) {
    gpu_others_ = gpus_->other_users();
    gpus_read_ns_ = now_ns();
  }
  counts.gpu_others = gpu_others_;
  rusage usage{};
  if (getrusage(RUSAGE_SELF, &usage) == 0) {
    counts.involuntary_switches = usage.ru_nivcsw;
    counts.major_faults = usage.ru_majflt;
  }
  counts.own_cpu_ns = process_cpu_ns();
  counts.at_ns = now_ns();
  return counts;
}

std::vector<std::string> SurroundingsReader::unseen() const {
  const SurroundingsCounts now = read();
  std::vector<std::string> names;
  if (!now.busy_seconds) names.push_back("what others do on these cores (/proc/stat)");
  if (!now.run_wait_ns) names.push_back("waits for a core (schedstat)");
  if (!now.throttled_ns) names.push_back("throttling by a quota (cpu.stat)");
  if (!now.memory_pressure_ns) names.push_back("pressure on memory and disk (PSI)");
  if (!now.swapped_pages) names.push_back("swapping (/proc/vmstat)");
  if (!now.read_bytes) names.push_back("what it reads (/proc/self/io)");
  if (!now.others_disk_bytes) names.push_back("what others move to and from the disks (/proc/vmstat)");
  return names;
}

}  // namespace redline::device
