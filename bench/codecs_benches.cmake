# Decoders, resize, resampling, Parquet batches: one thread, data in memory or in the page cache.
add_executable(codecs_bench codecs_bench.cpp)
target_link_libraries(codecs_bench PRIVATE redline_flags redline_data benchmark::benchmark)
