# Plan, workers, collation, cache, bad samples: free of torch, so that the sanitizer programs compile them again.
set(DATA_CORE_SOURCES
  bad_samples.cpp collate.cpp disk_cache.cpp feature_cache.cpp job.cpp job_queue.cpp job_runner.cpp memory_source.cpp ordered_loader.cpp
  plan.cpp plan_groups.cpp plan_order.cpp sample_chain.cpp step_split.cpp)
list(APPEND DATA_SOURCES ${DATA_CORE_SOURCES})
list(APPEND DATA_TESTS)
