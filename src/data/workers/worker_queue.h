// The worker threads and the window of stretches between them and the consumer. Chores are claimed in plan order and
// may finish in any; micro-batches are handed over in plan order. A slow sample holds up only its own micro-batch: the
// other workers go on to the end of the window, which is bounded by a count of micro-batches and by bytes.
//
// Locks: one mutex for claims and waits. A finished micro-batch is published with an atomic flag, so a consumer that
// finds it ready takes no lock, and neither side wakes the other unless it sleeps.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "data/workers/stretch.h"
#include "data/workers/stretch_runner.h"
#include "measure/stage_clock.h"

namespace redline::data {

class WorkerQueue {
 public:
  // Keeps a reference to the settings.
  WorkerQueue(const LoaderSettings& settings, std::shared_ptr<StretchMaker> maker,
              std::shared_ptr<StretchRunner> runner, measure::StageClock& clock);
  ~WorkerQueue();

  // Consumer only. The next micro-batch in plan order, complete; waits for it. nullptr when the maker has no more (end
  // of its limit).
  Micro* front();
  // Consumer only. Done with front().
  void pop();
  // Consumer only. Drops everything in flight and goes on at this place of the plan.
  void restart(int64_t epoch, int64_t step);
  // Consumer only. The maker's limit was raised.
  void wake();
  // Ends or (re)starts the threads; front() starts them when needed.
  void stop_workers();

  int64_t num_ready() const;  // consumer only: micro-batches complete and not taken

 private:
  struct Claim {
    std::shared_ptr<Stretch> stretch;
    uint32_t begin = 0, end = 0;
  };
  void start_workers();
  void work(int worker);
  void work_until_stopped(int worker);
  // With the lock held:
  bool has_chore();
  bool claim(Claim& claimed);
  bool may_start(const Stretch& stretch, uint32_t chore) const;
  bool may_open() const;
  void open_next(std::unique_lock<std::mutex>& lock);
  void run_inline();
  void run(const Claim& claimed, measure::StageClock::Slot& slot);
  uint32_t chunk(const Stretch& stretch) const;

  const LoaderSettings& settings_;
  std::shared_ptr<StretchMaker> maker_;
  std::shared_ptr<StretchRunner> runner_;
  measure::StageClock& clock_;

  mutable std::mutex mutex_;
  std::condition_variable work_, ready_, opened_;
  std::deque<std::shared_ptr<Stretch>> stretches_;  // opened and not wholly consumed
  size_t first_open_ = 0;                           // first of stretches_ with unclaimed chores
  uint64_t opened_micros_ = 0;                      // since the restart
  bool opening_ = false, exhausted_ = false, stopping_ = false;
  std::exception_ptr maker_error_;
  std::exception_ptr worker_error_;  // what ended a worker outside of a chore; the consumer throws it
  int idle_workers_ = 0;
  std::vector<std::thread> threads_;

  std::atomic<uint64_t> consumed_micros_{0};  // since the restart
  std::atomic<bool> consumer_waits_{false};
  std::atomic<int> idle_hint_{0};     // idle_workers_ without the lock
  std::atomic<int64_t> chore_ns_{0};  // running mean

  // Consumer's own.
  std::shared_ptr<Stretch> head_;
  size_t head_micro_ = 0;
};

}  // namespace redline::data
