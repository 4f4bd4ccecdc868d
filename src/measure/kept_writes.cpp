// What waits is counted over the process, so that five logs on one full disk share one bound and say one sentence.
#include "measure/kept_writes.h"

#include <set>
#include <utility>

#include "core/error.h"
#include "core/log.h"
#include "core/strings.h"
#include "core/time.h"

namespace redline::measure {
namespace {

constexpr int64_t kRetryEveryNs = 1'000'000'000;

struct AllKept {
  std::mutex mutex;  // taken before any KeptWrites::mutex_ in retry_kept_writes, and never around one elsewhere
  std::set<KeptWrites*> objects;

  std::mutex counts;
  int64_t bytes = 0, objects_waiting = 0;
};

AllKept& all_kept() {
  static AllKept* const all = new AllKept;  // never destroyed: a log may outlive static objects
  return *all;
}

}  // namespace

KeptWrites::KeptWrites(int64_t most_bytes) : most_bytes_(most_bytes) {
  const std::lock_guard lock(all_kept().mutex);
  all_kept().objects.insert(this);
}

KeptWrites::~KeptWrites() {
  {
    const std::lock_guard lock(all_kept().mutex);
    all_kept().objects.erase(this);
  }
  const std::lock_guard lock(all_kept().counts);
  for (const Waiting& one : waiting_) all_kept().bytes -= one.bytes;
  if (!waiting_.empty()) --all_kept().objects_waiting;
}

void KeptWrites::give_back(int64_t bytes) {
  const std::lock_guard lock(all_kept().counts);
  all_kept().bytes -= bytes;
}

void KeptWrites::keep(int64_t bytes, std::function<void()> write) {
  waiting_.push_back({bytes, std::move(write)});
  int64_t over = 0;
  {
    const std::lock_guard lock(all_kept().counts);
    all_kept().bytes += bytes;
    over = all_kept().bytes - most_bytes_;
  }
  // At least the newest stays: other logs may hold all of the bound.
  for (; over > 0 && waiting_.size() > 1; ++dropped_) {
    if (dropped_ == 0)
      log_warning("The disk still refuses the run's log and more than " +
                  format_bytes(static_cast<uint64_t>(most_bytes_)) +
                  " of it wait in memory: the oldest lines are lost.");
    over -= waiting_.front().bytes;
    give_back(waiting_.front().bytes);
    waiting_.pop_front();
  }
}

void KeptWrites::put(int64_t bytes, std::function<void()> write) {
  const std::lock_guard lock(mutex_);
  if (!waiting_.empty() && now_ns() - last_try_ns_ >= kRetryEveryNs) retry_locked();
  if (!waiting_.empty()) {
    keep(bytes, std::move(write));
    return;
  }
  try {
    write();
  } catch (const DiskError& error) {
    last_try_ns_ = now_ns();
    bool first = false;
    {
      const std::lock_guard counts(all_kept().counts);
      first = all_kept().objects_waiting++ == 0;
    }
    keep(bytes, std::move(write));
    if (first)
      log_warning(std::string(error.what()) + " Training goes on: up to " +
                  format_bytes(static_cast<uint64_t>(most_bytes_)) +
                  " of the run's log are kept in memory and written as soon as the disk lets us; if that never "
                  "happens, the run ends with exit code 7.");
  }
}

void KeptWrites::retry_locked() {
  if (waiting_.empty()) return;
  last_try_ns_ = now_ns();
  while (!waiting_.empty()) {
    try {
      waiting_.front().write();
    } catch (const DiskError&) {
      return;
    }
    give_back(waiting_.front().bytes);
    waiting_.pop_front();
  }
  bool last = false;
  {
    const std::lock_guard counts(all_kept().counts);
    last = --all_kept().objects_waiting == 0;
  }
  if (last) log_info("The run's log can be written again; what waited in memory is in its files.");
}

void KeptWrites::retry() {
  const std::lock_guard lock(mutex_);
  retry_locked();
}

KeptWrites::Unwritten KeptWrites::unwritten() const {
  const std::lock_guard lock(mutex_);
  return {static_cast<int64_t>(waiting_.size()), dropped_};
}

KeptWrites::Unwritten retry_kept_writes() {
  const std::lock_guard lock(all_kept().mutex);
  KeptWrites::Unwritten sum;
  for (KeptWrites* one : all_kept().objects) {
    one->retry();
    const KeptWrites::Unwritten left = one->unwritten();
    sum.waiting += left.waiting;
    sum.dropped += left.dropped;
  }
  return sum;
}

void KeptFile::append(std::string bytes) {
  const auto size = static_cast<int64_t>(bytes.size());
  kept_.put(size, [this, text = std::move(bytes)] { file_.append(text); });
}

}  // namespace redline::measure
