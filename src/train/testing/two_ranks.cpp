#include "train/testing/two_ranks.h"

#include <torch/csrc/distributed/c10d/HashStore.hpp>

#include <exception>
#include <thread>

#include "core/error.h"

namespace redline::train::testing {

void run_as_ranks(int world, const std::function<void(ThreadRank&)>& body) {
  const auto store = c10::make_intrusive<c10d::HashStore>();
  std::vector<std::exception_ptr> problems(static_cast<size_t>(world));
  std::vector<std::thread> threads;
  for (int r = 0; r < world; ++r)
    threads.emplace_back([&, r] {
      try {
        Launch launch;
        launch.by = "a test";
        launch.ranks = {r, world, r, world};
        RankWatch watch(store, launch, 60);
        RankGroup group(launch, store, {30, 30, "gloo"}, [](const std::string& what) { throw PeerLostError(what); });
        ThreadRank self{group, watch};
        body(self);
        watch.done();
      } catch (...) {
        problems[static_cast<size_t>(r)] = std::current_exception();
      }
    });
  for (std::thread& thread : threads) thread.join();
  // A rank that lost another is not the cause.
  std::exception_ptr first;
  for (const std::exception_ptr& problem : problems) {
    if (!problem) continue;
    if (!first) first = problem;
    try {
      std::rethrow_exception(problem);
    } catch (const PeerLostError&) {
    } catch (...) {
      throw;
    }
  }
  if (first) std::rethrow_exception(first);
}

}  // namespace redline::train::testing
