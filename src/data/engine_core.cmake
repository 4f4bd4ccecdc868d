# Plan, workers, collation, cache, bad samples: free of torch, so that the sanitizer programs compile them again.
set(DATA_CORE_SOURCES
  bad_samples.cpp collate.cpp disk_cache.cpp feature_cache.cpp item_memory.cpp job.cpp job_queue.cpp job_runner.cpp length_buckets.cpp memory_source.cpp ordered_loader.cpp
  plan.cpp plan_groups.cpp plan_order.cpp plan_stats.cpp sample_chain.cpp shuffle.cpp step_split.cpp stream_copy.cpp)
set(DATA_CORE_TESTS
  bad_samples_test.cpp collate_test.cpp feature_cache_test.cpp item_memory_test.cpp ordered_loader_test.cpp plan_stats_test.cpp plan_test.cpp step_split_test.cpp worker_memory_test.cpp)
