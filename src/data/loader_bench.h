// Runs a loader alone, as fast as it goes, with batches handed over as tensors, and says what it did.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>

#include "data/loader.h"

namespace redline::data {

struct LoaderBenchOptions {
  double seconds = 5.0;
  int64_t max_batches = 0;      // 0 = until the time is up
  int64_t order_batches = 256;  // the order hash is of the ids of so many batches from the start
};

struct LoaderBenchResult {
  int64_t samples = 0, batches = 0, items = 0, padded_items = 0, bad_samples = 0;
  int64_t cache_hits = 0, cache_misses = 0;
  double seconds = 0;              // from the first batch to the last
  double first_batch_seconds = 0;  // from the start of construction
  double cpu_seconds = 0;          // of the process, construction included
  double wait_p50_seconds = 0, wait_p99_seconds = 0;
  uint64_t peak_rss_bytes = 0, pss_bytes = 0;
  measure::StageTotals stages;
  uint64_t order_hash = 0;
  int64_t order_batches = 0;
};

// `make` is timed: it opens the data and builds the loader.
LoaderBenchResult bench_loader(const std::function<std::unique_ptr<Loader>()>& make, const LoaderBenchOptions& options);

}  // namespace redline::data
