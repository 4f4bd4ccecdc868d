#include "data/workers/worker_queue.h"

#include <pthread.h>

#include <system_error>

#include "core/check.h"
#include "core/error.h"
#include "core/log.h"
#include "core/time.h"
#include "measure/faults.h"

namespace redline::data {

namespace {
constexpr int64_t kClaimNs =
    50'000;  // chores are claimed in chunks of about this much work: a lock costs well under 1 % of it
}

WorkerQueue::WorkerQueue(const LoaderSettings& settings, std::shared_ptr<StretchMaker> maker,
                         std::shared_ptr<StretchRunner> runner, measure::StageClock& clock)
    : settings_(settings), maker_(std::move(maker)), runner_(std::move(runner)), clock_(clock) {}

WorkerQueue::~WorkerQueue() { stop_workers(); }

void WorkerQueue::start_workers() {
  if (!threads_.empty()) return;
  stopping_ = false;
  worker_error_ = nullptr;
  threads_.reserve(static_cast<size_t>(settings_.num_workers));
  try {
    for (int w = 0; w < settings_.num_workers; ++w) {
      if (measure::faults::take("data.worker_start"))
        throw std::system_error(std::make_error_code(std::errc::resource_unavailable_try_again));
      threads_.emplace_back([this, w] { work(w); });
    }
  } catch (const std::system_error& error) {
    const std::string why = std::string(error.code().message()) + "; ";
    if (threads_.empty()) {
      throw DeviceError("No data worker can be started: " + why +
                        "raise the limit of threads (ulimit -u, pids of the container) or set num_workers: 0.");
    }
    log_warning_once("Only " + std::to_string(threads_.size()) + " of " + std::to_string(settings_.num_workers) +
                     " data workers could be started: " + why +
                     "they do the work of all. Lower num_workers or raise the limit of threads.");
  }
}

void WorkerQueue::stop_workers() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  work_.notify_all();
  for (auto& thread : threads_) thread.join();
  threads_.clear();
}

uint32_t WorkerQueue::chunk(const Stretch& stretch) const {
  const int64_t mean = chore_ns_.load(std::memory_order_relaxed);
  if (mean <= 0) return 1;
  // Never so many that the other workers find nothing.
  const uint32_t fair =
      std::max<uint32_t>(1, stretch.num_chores() / static_cast<uint32_t>(std::max(1, settings_.num_workers)));
  return static_cast<uint32_t>(std::clamp<int64_t>(kClaimNs / mean, 1, fair));
}

// The head of the window may always start: the consumer waits for it.
bool WorkerQueue::may_start(const Stretch& stretch, uint32_t chore) const {
  const uint64_t consumed = consumed_micros_.load(std::memory_order_seq_cst);
  uint64_t micro = 0;
  if (stretch.whole_batches)
    micro = chore;
  else if (stretch.groups.empty())
    micro = stretch.micro_of[chore];
  if (stretch.first_sequence + micro <= consumed) return true;
  if (stretch.first_sequence + micro >= consumed + static_cast<uint64_t>(settings_.prefetch_batches)) return false;
  return &stretch == stretches_.front().get() || runner_->buffered_bytes() < settings_.max_buffer_bytes;
}

bool WorkerQueue::has_chore() {
  while (first_open_ < stretches_.size() &&
         stretches_[first_open_]->next_chore == stretches_[first_open_]->num_chores())
    ++first_open_;
  return first_open_ < stretches_.size() && may_start(*stretches_[first_open_], stretches_[first_open_]->next_chore);
}

bool WorkerQueue::claim(Claim& claimed) {
  if (!has_chore()) return false;
  const auto& stretch = stretches_[first_open_];
  claimed.stretch = stretch;
  claimed.begin = stretch->next_chore;
  const uint32_t most = std::min(stretch->num_chores(), claimed.begin + chunk(*stretch));
  claimed.end = claimed.begin + 1;
  while (claimed.end < most && may_start(*stretch, claimed.end)) ++claimed.end;
  stretch->next_chore = claimed.end;
  return true;
}

bool WorkerQueue::may_open() const {
  if (opening_ || exhausted_ || first_open_ < stretches_.size()) return false;
  if (stretches_.empty()) return true;
  const uint64_t consumed = consumed_micros_.load(std::memory_order_seq_cst);
  return opened_micros_ < consumed + static_cast<uint64_t>(settings_.prefetch_batches) &&
         runner_->buffered_bytes() < settings_.max_buffer_bytes;
}

// Makes the next stretch without the lock (a new epoch's plan takes milliseconds), one thread at a time.
void WorkerQueue::open_next(std::unique_lock<std::mutex>& lock) {
  opening_ = true;
  lock.unlock();
  std::shared_ptr<Stretch> made;
  std::exception_ptr error;
  try {
    if (std::unique_ptr<Stretch> stretch = maker_->make_next()) {
      // Whoever lets go of a stretch last gives back the bytes it still holds.
      made = std::shared_ptr<Stretch>(stretch.release(), [runner = runner_](Stretch* last) {
        runner->drop(*last);
        delete last;
      });
    }
  } catch (...) {
    error = std::current_exception();
  }
  lock.lock();
  opening_ = false;
  opened_.notify_all();
  if (made == nullptr) {
    exhausted_ = true;
    maker_error_ = error;
  } else {
    made->first_sequence = opened_micros_;
    opened_micros_ += made->micros.size();
    stretches_.push_back(std::move(made));
  }
  if (idle_workers_ > 0) work_.notify_all();
  if (consumer_waits_.load(std::memory_order_relaxed)) ready_.notify_one();
}

void WorkerQueue::run(const Claim& claimed, measure::StageClock::Slot& slot) {
  const int64_t begin = now_ns();
  const bool finished = runner_->run(*claimed.stretch, claimed.begin, claimed.end, slot);
  const int64_t each = (now_ns() - begin) / (claimed.end - claimed.begin);
  const int64_t mean = chore_ns_.load(std::memory_order_relaxed);
  chore_ns_.store(mean == 0 ? each : mean + (each - mean) / 8, std::memory_order_relaxed);
  if (finished && consumer_waits_.load(std::memory_order_seq_cst)) {
    const std::lock_guard lock(mutex_);
    ready_.notify_one();
  }
}

void WorkerQueue::work(int worker) {
  try {
    work_until_stopped(worker);
  } catch (...) {
    const std::lock_guard lock(mutex_);
    worker_error_ = std::current_exception();
    ready_.notify_one();
  }
}

void WorkerQueue::work_until_stopped(int worker) {
  pthread_setname_np(pthread_self(), ("redline-data" + std::to_string(worker)).c_str());
  if (settings_.on_worker_start) settings_.on_worker_start();
  auto& slot = clock_.slot(worker + 1);
  std::unique_lock lock(mutex_);
  while (!stopping_) {
    Claim claimed;
    if (claim(claimed)) {
      lock.unlock();
      run(claimed, slot);
      claimed.stretch.reset();
      lock.lock();
    } else if (may_open()) {
      open_next(lock);
    } else {
      idle_hint_.store(++idle_workers_, std::memory_order_seq_cst);
      // Looked at again after saying so: a pop() between the two either sees the hint or is seen here.
      if (!has_chore() && !may_open()) work_.wait(lock);
      idle_hint_.store(--idle_workers_, std::memory_order_seq_cst);
    }
  }
}

// Without workers: makes the head complete, chore by chore, and no more than that.
void WorkerQueue::run_inline() {
  auto& slot = clock_.slot(0);
  while (head_ != nullptr && !head_->micros[head_micro_].done.load(std::memory_order_relaxed)) {
    Claim claimed;
    claimed.stretch = head_;
    claimed.begin = head_->next_chore;
    REDLINE_CHECK(claimed.begin < head_->num_chores(), "a micro-batch is complete once all chores are done");
    claimed.end = ++head_->next_chore;
    run(claimed, slot);
  }
}

Micro* WorkerQueue::front() {
  if (head_ != nullptr) {
    Micro& micro = head_->micros[head_micro_];
    if (micro.done.load(std::memory_order_acquire)) return &micro;
  }
  const bool inline_chores = settings_.num_workers == 0;
  std::unique_lock lock(mutex_);
  if (!inline_chores) start_workers();
  while (head_ == nullptr) {
    if (worker_error_ != nullptr) std::rethrow_exception(worker_error_);
    if (!stretches_.empty()) {
      head_ = stretches_.front();
      head_micro_ = 0;
    } else if (exhausted_) {
      if (maker_error_ != nullptr) std::rethrow_exception(maker_error_);
      return nullptr;
    } else if (inline_chores) {
      open_next(lock);
    } else {
      consumer_waits_.store(true, std::memory_order_seq_cst);
      if (idle_workers_ > 0) work_.notify_all();
      ready_.wait(lock);
      consumer_waits_.store(false, std::memory_order_seq_cst);
    }
  }
  if (inline_chores) {
    lock.unlock();
    run_inline();
    return &head_->micros[head_micro_];
  }
  Micro& micro = head_->micros[head_micro_];
  if (idle_workers_ > 0) work_.notify_all();
  consumer_waits_.store(true, std::memory_order_seq_cst);
  while (!micro.done.load(std::memory_order_seq_cst) && worker_error_ == nullptr) ready_.wait(lock);
  consumer_waits_.store(false, std::memory_order_seq_cst);
  if (!micro.done.load(std::memory_order_acquire)) std::rethrow_exception(worker_error_);
  return &micro;
}

void WorkerQueue::pop() {
  consumed_micros_.fetch_add(1, std::memory_order_seq_cst);
  const bool stretch_done = ++head_micro_ == head_->micros.size();
  if (stretch_done) {
    const std::lock_guard lock(mutex_);
    stretches_.pop_front();
    if (first_open_ > 0) --first_open_;
    if (idle_workers_ > 0) work_.notify_all();
  } else if (idle_hint_.load(std::memory_order_seq_cst) > 0 && !head_->whole_batches) {
    const std::lock_guard lock(mutex_);
    work_.notify_all();
  }
  if (stretch_done) head_ = nullptr;
}

void WorkerQueue::restart(int64_t epoch, int64_t step) {
  std::deque<std::shared_ptr<Stretch>> dropped;
  {
    std::unique_lock lock(mutex_);
    opened_.wait(lock, [this] { return !opening_; });
    dropped.swap(stretches_);
    first_open_ = 0;
    opened_micros_ = 0;
    consumed_micros_.store(0, std::memory_order_seq_cst);
    exhausted_ = false;
    maker_error_ = nullptr;
    maker_->move_to(epoch, step);
    if (idle_workers_ > 0) work_.notify_all();
  }
  head_ = nullptr;
  head_micro_ = 0;
}

void WorkerQueue::wake() {
  std::unique_lock lock(mutex_);
  opened_.wait(lock, [this] { return !opening_; });  // one that still saw the old limit would call it exhausted
  exhausted_ = false;
  if (idle_workers_ > 0) work_.notify_all();
}

int64_t WorkerQueue::num_ready() const {
  const std::lock_guard lock(mutex_);
  int64_t ready = 0;
  for (const auto& stretch : stretches_) {
    for (const Micro& micro : stretch->micros) ready += micro.done.load(std::memory_order_acquire) ? 1 : 0;
  }
  return head_ == nullptr ? ready : ready - static_cast<int64_t>(head_micro_);  // those were taken
}

}  // namespace redline::data
