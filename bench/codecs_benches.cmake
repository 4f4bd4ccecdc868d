# Decoders, resize, resampling, Parquet batches: one thread, data in memory or in the page cache. flac_ceiling: what pinned threads decode.
add_executable(codecs_bench codecs_bench.cpp)
target_link_libraries(codecs_bench PRIVATE redline_flags redline_data benchmark::benchmark)
add_executable(flac_ceiling flac_ceiling.cpp)
target_link_libraries(flac_ceiling PRIVATE redline_flags redline_data)
add_executable(resume_bench resume_bench.cpp)
target_link_libraries(resume_bench PRIVATE redline_flags redline_data)
