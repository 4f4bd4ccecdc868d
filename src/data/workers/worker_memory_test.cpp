// A worker that runs out of memory, at every allocation in turn: the run ends with an exception in the consumer's
// thread (or does not notice), never with std::terminate and never with a consumer that waits for ever. This file
// replaces operator new for the whole test program; it fails only where a test arms it.
#include <gtest/gtest.h>

#include <cstdlib>
#include <new>

#include "core/error.h"
#include "core/run_threads.h"
#include "data/audio/audio_clip.h"
#include "data/synth/synth_parts.h"
#include "data/testing/engine.h"
#include "measure/faults.h"

namespace {

thread_local int64_t allocations_left = -1;  // of this thread until they fail; below 0: never

void* allocate_or_fail(size_t bytes) {
  if (allocations_left == 0) throw std::bad_alloc();
  if (allocations_left > 0) --allocations_left;
  if (void* memory = std::malloc(bytes == 0 ? 1 : bytes)) return memory;
  throw std::bad_alloc();
}

}  // namespace

void* operator new(size_t bytes) { return allocate_or_fail(bytes); }
void* operator new[](size_t bytes) { return allocate_or_fail(bytes); }
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete[](void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, size_t) noexcept { std::free(memory); }
void operator delete[](void* memory, size_t) noexcept { std::free(memory); }

namespace redline::data {
namespace {

namespace te = testing_engine;

// Runs one epoch whose sample 3 leaves its worker `left` allocations; whether the epoch failed for lack of memory.
bool epoch_fails(int64_t left, int workers, bool mix, bool whole_batches) {
  auto source = std::make_shared<te::HookedSource>(te::numbered_source(12), [left](int64_t index) {
    if (index == 3) allocations_left = left;
    return std::optional<BadSample>();
  });
  te::LoaderOptions options;
  options.loader.num_workers = workers;
  options.loader.prefetch_batches = 6;
  options.loader.continuous = false;
  options.mix = mix;
  std::shared_ptr<Source> used = source;
  if (whole_batches) used = std::make_shared<te::TableSource>(source, [](int64_t) { return false; });
  options.whole_batches = whole_batches;
  bool failed = false;
  try {
    const auto loader = te::make_loader(used, options);
    int64_t rows = 0;
    while (auto batch = loader->next()) rows += static_cast<int64_t>(batch->sample_ids.size());
    EXPECT_EQ(rows, 12);
  } catch (const OutOfMemoryError& error) {
    allocations_left = -1;
    failed = true;
    EXPECT_NE(std::string(error.what()).find("memory"), std::string::npos) << error.what();
  } catch (const std::bad_alloc&) {
    allocations_left = -1;
    failed = true;
  }
  allocations_left = -1;
  return failed;
}

TEST(WorkerMemory, EveryFailingAllocationOfAWorkerReachesTheConsumer) {
  for (const bool mix : {false, true}) {
    for (const bool whole : {false, true}) {
      if (mix && whole) continue;
      int failures = 0;
      for (int64_t left = 0; left < 80; ++left) failures += epoch_fails(left, 2, mix, whole) ? 1 : 0;
      EXPECT_GT(failures, 5) << "mix " << mix << ", whole " << whole;
      EXPECT_FALSE(epoch_fails(-1, 2, mix, whole)) << "the control: enough memory";
    }
  }
}

TEST(WorkerThreads, FewerThanWantedDoAllTheWorkAndNoneIsAClearError) {
  for (const int failing : {2, 1}) {
    measure::faults::fail_once("data.worker_start", failing);
    te::LoaderOptions options;
    options.loader.num_workers = 4;
    const auto loader = te::make_loader(te::numbered_source(20), options);
    if (failing == 2) {
      int64_t rows = 0;
      while (auto batch = loader->next()) rows += static_cast<int64_t>(batch->sample_ids.size());
      EXPECT_EQ(rows, 20);
    } else {
      try {
        loader->next();
        ADD_FAILURE() << "no worker, no batch";
      } catch (const DeviceError& error) {
        EXPECT_NE(std::string(error.what()).find("num_workers: 0"), std::string::npos) << error.what();
      }
    }
    measure::faults::clear();
  }
}

TEST(WorkerThreads, AWorkerThatCannotBeginEndsTheRunInsteadOfTheProcess) {
  te::LoaderOptions options;
  options.loader.num_workers = 2;
  options.loader.on_worker_start = [] { throw DeviceError("no such device"); };
  const auto loader = te::make_loader(te::numbered_source(20), options);
  EXPECT_THROW(loader->next(), DeviceError);
}

TEST(HelperThreads, ExceptionsTravelAndThreadsThatCannotStartAreDoneWithout) {
  std::atomic<int> next = 0, done = 0;
  const auto work = [&] {
    while (next++ < 100) ++done;
  };
  int started = 0;
  run_threads(8, work, [&](const auto& guarded) {
    if (++started == 3) throw std::system_error(std::make_error_code(std::errc::resource_unavailable_try_again));
    return std::jthread(guarded);
  });
  EXPECT_EQ(done, 100);
  EXPECT_EQ(started, 3);
  EXPECT_THROW(run_threads(4, [] { throw DataError("on purpose"); }), DataError);

  EXPECT_THROW(measure_all(1000,
                           [](size_t i) -> double {
                             if (i == 700) throw DataError("a tar is gone");
                             return 1.0;
                           }),
               DataError);
  EXPECT_EQ(measure_all(1000, [](size_t i) { return static_cast<double>(i); })[999], 999.0);
  EXPECT_THROW(synth::for_each_item(100, 4,
                                    [](int64_t item) {
                                      if (item == 50) throw DiskError("full");
                                    }),
               DiskError);
}

}  // namespace
}  // namespace redline::data
