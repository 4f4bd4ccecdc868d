// Signs of life between ranks, through the store: a thread of its own tells what this rank does and looks whether the
// others still do anything. When one is lost it says which and in what phase, and sees to it that this process ends,
// whatever its main thread waits for.
#pragma once

#include <atomic>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <thread>

#include <c10/util/intrusive_ptr.h>

#include "measure/step_clock.h"
#include "train/launch.h"
#include "train/ranks/peer_table.h"

namespace c10d {
class Store;
}

namespace redline::train {

class RankWatch {
 public:
  // `store`: a connection of its own, since one that waits blocks all its users.
  RankWatch(c10::intrusive_ptr<c10d::Store> store, const Launch& launch, double peer_seconds);
  ~RankWatch();
  RankWatch(const RankWatch&) = delete;
  RankWatch& operator=(const RankWatch&) = delete;

  // What this rank tells of itself. `clock` outlives the loop that it belongs to; null: no loop.
  void follow(const measure::StepClock* clock) { clock_.store(clock); }
  void at_step(int64_t step) { step_.store(step, std::memory_order_relaxed); }
  void doing(const char* phase) { phase_.store(phase); }  // outside a loop; a literal
  // Told once before this process is ended by the watch, from its thread.
  void on_end(std::function<void(const Loss&)> told);

  // A collective failed: waits until it is known who is lost, and throws PeerLostError.
  [[noreturn]] void explain(const std::string& what);
  // This rank came to its end with the others, or ends because of that; nobody is lost from here on.
  void done();
  void failed(const std::string& reason, int exit_code) noexcept;
  std::optional<Loss> lost() const;

 private:
  void run();
  void supervise();
  void tell(Beat::State state, const std::string& reason, int exit_code);
  void look();
  void found(Loss loss);
  [[noreturn]] void end_process(const Loss& loss);

  c10::intrusive_ptr<c10d::Store> store_;
  Launch launch_;
  double look_seconds_, peer_seconds_;
  PeerTable table_;
  std::vector<bool> known_;
  std::atomic<const measure::StepClock*> clock_{nullptr};
  std::atomic<const char*> phase_{"start"};
  std::atomic<int64_t> step_{0};
  std::atomic<int64_t> looks_{0};
  std::atomic<int> missing_{-1};   // a rank that has not been heard of yet
  std::atomic<int> ends_with_{0};  // this rank is on its way out with that code

  std::mutex telling_;  // guards the store's use and the count
  int64_t count_ = 0;
  bool ended_ = false;  // told so: no beats follow

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  bool stop_ = false, explaining_ = false;
  std::optional<Loss> lost_;
  std::function<void(const Loss&)> told_;
  std::thread beats_, supervisor_;
};

}  // namespace redline::train
