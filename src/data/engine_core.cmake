# Plan, workers, collation, cache, bad samples: free of torch, so that the sanitizer programs compile them again.
set(DATA_CORE_SOURCES
  workers/bad_samples.cpp collate.cpp cache/disk_cache.cpp cache/feature_cache.cpp workers/item_memory.cpp workers/job.cpp workers/job_queue.cpp workers/job_runner.cpp plan/length_buckets.cpp memory_source.cpp workers/ordered_loader.cpp
  plan/plan.cpp plan/plan_groups.cpp plan/plan_order.cpp plan_stats.cpp workers/sample_chain.cpp plan/shuffle.cpp step_split.cpp files/stream_copy.cpp)
set(DATA_CORE_TESTS
  workers/bad_samples_test.cpp collate_test.cpp cache/feature_cache_test.cpp workers/item_memory_test.cpp workers/ordered_loader_test.cpp plan_stats_test.cpp plan/plan_test.cpp step_split_test.cpp workers/worker_memory_test.cpp)
