// The queue and worker core under ThreadSanitizer: a program of its own, compiled from the torch-free sources. Runs
// 100,000 small samples through every kind of job, with seeks, exceptions and early ends. `--planted` races on purpose:
// the test that must fail, so that a silent sanitizer is noticed.
#include <cstdio>
#include <cstring>
#include <thread>

#include "core/error.h"
#include "core/log.h"
#include "data/testing/engine.h"

namespace {

using namespace redline;
using namespace redline::data;
namespace te = redline::data::testing_engine;

constexpr int64_t kSamples = 4000;

int failures = 0;
void expect(bool condition, const char* what) {
  if (condition) return;
  std::fprintf(stderr, "FAILED: %s\n", what);
  ++failures;
}

te::LoaderOptions options_for(int round) {
  te::LoaderOptions options;
  options.loader.num_workers = 1 + round % 4;
  options.loader.prefetch_batches = 1 + round % 7;
  options.jitter = round % 2 == 0;
  options.mix = round % 3 == 0;
  options.plan.groups_per_step = 1 + round % 3;
  options.loader.split.micro_batch_size = round % 5;
  options.loader.persistent_workers = round % 4 != 3;
  options.loader.max_buffer_bytes = round % 6 == 5 ? 4096 : int64_t{1} << 30;
  return options;
}

int64_t run_epoch(Loader& loader) {
  int64_t rows = 0;
  while (auto batch = loader.next()) rows += static_cast<int64_t>(batch->sample_ids.size());
  return rows;
}

void sample_jobs(const std::shared_ptr<MemorySource>& source) {
  for (int round = 0; round < 12; ++round) {
    te::LoaderOptions options = options_for(round);
    if (round % 2 == 1) options.cache = make_memory_cache(1 << 20);
    auto loader = te::make_loader(source, options);
    expect(run_epoch(*loader) == kSamples, "an epoch delivers every sample");
    expect(run_epoch(*loader) == kSamples, "so does the next");
  }
}

void batch_jobs(const std::shared_ptr<MemorySource>& source) {
  auto table = std::make_shared<te::TableSource>(source, [](int64_t i) { return i % 97 == 3; });
  for (int round = 0; round < 6; ++round) {
    te::LoaderOptions options;
    options.whole_batches = true;
    options.plan.batch_size = 16;
    options.loader.num_workers = 1 + round % 3;
    auto loader = te::make_loader(table, options);
    expect(run_epoch(*loader) == kSamples, "whole batches deliver every row");
  }
}

void seeks_and_ends(const std::shared_ptr<MemorySource>& source) {
  KeyedStream random(1, 2, 3, 4);
  for (int round = 0; round < 30; ++round) {
    auto loader = te::make_loader(source, options_for(round));
    for (int64_t turns = random.uniform_int(0, 5); turns > 0; --turns) {
      loader->seek(random.uniform_int(0, 3), random.uniform_int(0, loader->steps_per_epoch() - 1));
      for (int64_t n = random.uniform_int(0, 40); n > 0; --n) loader->next();
      expect(loader->stats().queue_bytes >= 0, "bytes in flight are never negative");
    }
  }
}

void exceptions(const std::shared_ptr<MemorySource>& source) {
  auto throwing = std::make_shared<te::HookedSource>(source, [](int64_t i) -> std::optional<BadSample> {
    if (i % 500 == 7) throw DiskError("on purpose");
    if (i % 50 == 1) return BadSample{"row", "bad on purpose"};
    return std::nullopt;
  });
  for (int round = 0; round < 8; ++round) {
    auto loader = te::make_loader(throwing, options_for(round));
    int thrown = 0;
    for (int i = 0; i < 200; ++i) {
      try {
        loader->next();
      } catch (const DiskError&) {
        ++thrown;
        loader->seek(loader->position().epoch, std::min(loader->position().step + 1, loader->steps_per_epoch()));
      }
    }
    expect(thrown > 0, "exceptions reach the consumer");
  }
}

// Two threads write one variable without order: ThreadSanitizer must report it.
int planted() {
  int shared = 0;
  std::thread other([&shared] {
    for (int i = 0; i < 1000; ++i) ++shared;
  });
  for (int i = 0; i < 1000; ++i) ++shared;
  other.join();
  return shared < 0 ? 1 : 0;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc > 1 && std::strcmp(argv[1], "--planted") == 0) return planted();
  set_log_level(LogLevel::Error);
  const auto source = te::numbered_source(kSamples);
  sample_jobs(source);
  batch_jobs(source);
  seeks_and_ends(source);
  exceptions(source);
  std::printf("%s\n", failures == 0 ? "no failure" : "failures");
  return failures == 0 ? 0 : 1;
}
