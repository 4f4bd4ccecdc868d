#include "data/workers/job_queue.h"

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
    50'000;  // tasks are claimed in chunks of about this much work: a lock costs well under 1 % of it
}

JobQueue::JobQueue(Settings settings, std::shared_ptr<JobMaker> maker, std::shared_ptr<JobRunner> runner,
                   measure::StageClock& clock)
    : settings_(std::move(settings)), maker_(std::move(maker)), runner_(std::move(runner)), clock_(clock) {}

JobQueue::~JobQueue() { stop_workers(); }

void JobQueue::start_workers() {
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

void JobQueue::stop_workers() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  work_.notify_all();
  for (auto& thread : threads_) thread.join();
  threads_.clear();
}

uint32_t JobQueue::chunk(const Job& job) const {
  const int64_t mean = task_ns_.load(std::memory_order_relaxed);
  if (mean <= 0) return 1;
  // Never so many that the other workers find nothing.
  const uint32_t fair =
      std::max<uint32_t>(1, job.num_tasks() / static_cast<uint32_t>(std::max(1, settings_.num_workers)));
  return static_cast<uint32_t>(std::clamp<int64_t>(kClaimNs / mean, 1, fair));
}

// The head of the window may always start: the consumer waits for it.
bool JobQueue::may_start(const Job& job, uint32_t task) const {
  const uint64_t consumed = consumed_micros_.load(std::memory_order_seq_cst);
  uint64_t micro = 0;
  if (job.whole_batches)
    micro = task;
  else if (job.groups.empty())
    micro = job.micro_of[task];
  if (job.first_sequence + micro <= consumed) return true;
  if (job.first_sequence + micro >= consumed + static_cast<uint64_t>(settings_.window)) return false;
  return &job == jobs_.front().get() || runner_->buffered_bytes() < settings_.max_buffer_bytes;
}

bool JobQueue::has_task() {
  while (first_open_ < jobs_.size() && jobs_[first_open_]->next_task == jobs_[first_open_]->num_tasks()) ++first_open_;
  return first_open_ < jobs_.size() && may_start(*jobs_[first_open_], jobs_[first_open_]->next_task);
}

bool JobQueue::claim(Task& task) {
  if (!has_task()) return false;
  const auto& job = jobs_[first_open_];
  task.job = job;
  task.begin = job->next_task;
  const uint32_t most = std::min(job->num_tasks(), task.begin + chunk(*job));
  task.end = task.begin + 1;
  while (task.end < most && may_start(*job, task.end)) ++task.end;
  job->next_task = task.end;
  return true;
}

bool JobQueue::may_open() const {
  if (opening_ || exhausted_ || first_open_ < jobs_.size()) return false;
  if (jobs_.empty()) return true;
  const uint64_t consumed = consumed_micros_.load(std::memory_order_seq_cst);
  return opened_micros_ < consumed + static_cast<uint64_t>(settings_.window) &&
         runner_->buffered_bytes() < settings_.max_buffer_bytes;
}

// Makes the next job without the lock (a new epoch's plan takes milliseconds), one thread at a time.
void JobQueue::open_next(std::unique_lock<std::mutex>& lock) {
  opening_ = true;
  lock.unlock();
  std::shared_ptr<Job> made;
  std::exception_ptr error;
  try {
    if (std::unique_ptr<Job> job = maker_->make_next()) {
      // Whoever lets go of a job last gives back the bytes it still holds.
      made = std::shared_ptr<Job>(job.release(), [runner = runner_](Job* last) {
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
    jobs_.push_back(std::move(made));
  }
  if (idle_workers_ > 0) work_.notify_all();
  if (consumer_waits_.load(std::memory_order_relaxed)) ready_.notify_one();
}

void JobQueue::run(const Task& task, measure::StageClock::Slot& slot) {
  const int64_t begin = now_ns();
  const bool finished = runner_->run(*task.job, task.begin, task.end, slot);
  const int64_t each = (now_ns() - begin) / (task.end - task.begin);
  const int64_t mean = task_ns_.load(std::memory_order_relaxed);
  task_ns_.store(mean == 0 ? each : mean + (each - mean) / 8, std::memory_order_relaxed);
  if (finished && consumer_waits_.load(std::memory_order_seq_cst)) {
    const std::lock_guard lock(mutex_);
    ready_.notify_one();
  }
}

void JobQueue::work(int worker) {
  try {
    work_until_stopped(worker);
  } catch (...) {
    const std::lock_guard lock(mutex_);
    worker_error_ = std::current_exception();
    ready_.notify_one();
  }
}

void JobQueue::work_until_stopped(int worker) {
  pthread_setname_np(pthread_self(), ("redline-data" + std::to_string(worker)).c_str());
  if (settings_.on_worker_start) settings_.on_worker_start();
  auto& slot = clock_.slot(worker + 1);
  std::unique_lock lock(mutex_);
  while (!stopping_) {
    Task task;
    if (claim(task)) {
      lock.unlock();
      run(task, slot);
      task.job.reset();
      lock.lock();
    } else if (may_open()) {
      open_next(lock);
    } else {
      idle_hint_.store(++idle_workers_, std::memory_order_seq_cst);
      // Looked at again after saying so: a pop() between the two either sees the hint or is seen here.
      if (!has_task() && !may_open()) work_.wait(lock);
      idle_hint_.store(--idle_workers_, std::memory_order_seq_cst);
    }
  }
}

// Without workers: makes the head complete, task by task, and no more than that.
void JobQueue::run_inline() {
  auto& slot = clock_.slot(0);
  while (head_ != nullptr && !head_->micros[head_micro_].done.load(std::memory_order_relaxed)) {
    Task task;
    task.job = head_;
    task.begin = head_->next_task;
    REDLINE_CHECK(task.begin < head_->num_tasks(), "a micro-batch is complete once all tasks are done");
    task.end = ++head_->next_task;
    run(task, slot);
  }
}

Micro* JobQueue::front() {
  if (head_ != nullptr) {
    Micro& micro = head_->micros[head_micro_];
    if (micro.done.load(std::memory_order_acquire)) return &micro;
  }
  const bool inline_tasks = settings_.num_workers == 0;
  std::unique_lock lock(mutex_);
  if (!inline_tasks) start_workers();
  while (head_ == nullptr) {
    if (worker_error_ != nullptr) std::rethrow_exception(worker_error_);
    if (!jobs_.empty()) {
      head_ = jobs_.front();
      head_micro_ = 0;
    } else if (exhausted_) {
      if (maker_error_ != nullptr) std::rethrow_exception(maker_error_);
      return nullptr;
    } else if (inline_tasks) {
      open_next(lock);
    } else {
      consumer_waits_.store(true, std::memory_order_seq_cst);
      if (idle_workers_ > 0) work_.notify_all();
      ready_.wait(lock);
      consumer_waits_.store(false, std::memory_order_seq_cst);
    }
  }
  if (inline_tasks) {
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

void JobQueue::pop() {
  consumed_micros_.fetch_add(1, std::memory_order_seq_cst);
  const bool job_done = ++head_micro_ == head_->micros.size();
  if (job_done) {
    const std::lock_guard lock(mutex_);
    jobs_.pop_front();
    if (first_open_ > 0) --first_open_;
    if (idle_workers_ > 0) work_.notify_all();
  } else if (idle_hint_.load(std::memory_order_seq_cst) > 0 && !head_->whole_batches) {
    const std::lock_guard lock(mutex_);
    work_.notify_all();
  }
  if (job_done) head_ = nullptr;
}

void JobQueue::restart(int64_t epoch, int64_t step) {
  std::deque<std::shared_ptr<Job>> dropped;
  {
    std::unique_lock lock(mutex_);
    opened_.wait(lock, [this] { return !opening_; });
    dropped.swap(jobs_);
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

void JobQueue::wake() {
  std::unique_lock lock(mutex_);
  opened_.wait(lock, [this] { return !opening_; });  // one that still saw the old limit would call it exhausted
  exhausted_ = false;
  if (idle_workers_ > 0) work_.notify_all();
}

int64_t JobQueue::num_ready() const {
  const std::lock_guard lock(mutex_);
  int64_t ready = 0;
  for (const auto& job : jobs_) {
    for (const Micro& micro : job->micros) ready += micro.done.load(std::memory_order_acquire) ? 1 : 0;
  }
  return head_ == nullptr ? ready : ready - static_cast<int64_t>(head_micro_);  // those were taken
}

}  // namespace redline::data
