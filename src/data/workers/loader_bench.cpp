#include "data/loader_bench.h"

#include <algorithm>
#include <fstream>
#include <string>
#include <vector>

#include "core/hash.h"
#include "core/time.h"
#include "data/tensor_batch.h"

namespace redline::data {

namespace {

// A line "Name:   123 kB" of a file under /proc/self, in bytes; 0 when it is not there.
uint64_t proc_bytes(const char* file, const std::string& name) {
  std::ifstream in(file);
  for (std::string word; in >> word;) {
    if (word != name) continue;
    uint64_t kilobytes = 0;
    in >> kilobytes;
    return kilobytes * 1024;
  }
  return 0;
}

double quantile_of(std::vector<double>& values, double q) {
  if (values.empty()) return 0.0;
  const auto nth = values.begin() + static_cast<std::ptrdiff_t>(q * static_cast<double>(values.size() - 1));
  std::nth_element(values.begin(), nth, values.end());
  return *nth;
}

}  // namespace

LoaderBenchResult bench_loader(const std::function<std::unique_ptr<Loader>()>& make,
                               const LoaderBenchOptions& options) {
  LoaderBenchResult result;
  const int64_t begin = now_ns(), cpu_begin = process_cpu_ns();
  const std::unique_ptr<Loader> loader = make();
  std::vector<double> waits;
  int64_t first = 0, now = begin;
  bool in_first_epoch = true;
  while (true) {
    const int64_t asked = now_ns();
    const auto batch = loader->next();
    if (!batch) {
      in_first_epoch = false;
      continue;
    }
    const auto tensors = to_tensors(*batch);
    now = now_ns();
    if (in_first_epoch && result.order_batches < options.order_batches) {
      result.order_hash = hash64(std::as_bytes(std::span(batch->sample_ids)), result.order_hash);
      ++result.order_batches;
    }
    if (first == 0) {  // the first batch starts the clock and is not counted
      first = now;
      result.first_batch_seconds = seconds_between(begin, now);
      continue;
    }
    waits.push_back(seconds_between(asked, now));
    result.samples += static_cast<int64_t>(batch->sample_ids.size());
    result.items += batch->items;
    result.padded_items += batch->padded_items;
    ++result.batches;
    if (result.batches == options.max_batches || seconds_between(first, now) >= options.seconds) break;
  }
  result.seconds = seconds_between(first, now);
  result.cpu_seconds = static_cast<double>(process_cpu_ns() - cpu_begin) * 1e-9;
  result.wait_p50_seconds = quantile_of(waits, 0.5);
  result.wait_p99_seconds = quantile_of(waits, 0.99);
  result.peak_rss_bytes = proc_bytes("/proc/self/status", "VmHWM:");
  result.pss_bytes = proc_bytes("/proc/self/smaps_rollup", "Pss:");
  const LoaderStats stats = loader->stats();
  result.stages = stats.stages;
  result.bad_samples = stats.bad_samples;
  result.cache_hits = stats.cache_hits;
  result.cache_misses = stats.cache_misses;
  return result;
}

}  // namespace redline::data
