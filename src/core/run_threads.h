// Runs the same work on several threads at once, the caller's among them, and comes back when all are done. The first
// exception travels to the caller; a thread that cannot be started (the system's limit of threads or memory) only means
// that the others do its share, so `work` must take its items from something shared.
#pragma once

#include <exception>
#include <functional>
#include <mutex>
#include <new>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

namespace redline {

// `start` is there for tests that let the start of a thread fail.
template <class Work, class Start>
void run_threads(int count, const Work& work, const Start& start) {
  std::mutex mutex;
  std::exception_ptr failure;
  const auto guarded = [&] {
    try {
      work();
    } catch (...) {
      const std::lock_guard lock(mutex);
      if (!failure) failure = std::current_exception();
    }
  };
  std::vector<std::jthread> helpers;  // joined whatever happens below
  try {
    for (int i = 1; i < count; ++i) helpers.push_back(start(guarded));
  } catch (const std::system_error&) {
  } catch (const std::bad_alloc&) {
  }
  guarded();
  helpers.clear();
  if (failure) std::rethrow_exception(failure);
}

template <class Work>
void run_threads(int count, const Work& work) {
  run_threads(count, work, [](const auto& guarded) { return std::jthread(guarded); });
}

}  // namespace redline
