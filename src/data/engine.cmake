include(engine_core.cmake)
list(APPEND DATA_SOURCES ${DATA_CORE_SOURCES}
  audio/audio_clip.cpp audio/audio_transforms.cpp build_loader.cpp dataset_config.cpp dataset_fields.cpp images/image_table.cpp images/image_transforms.cpp
  loader_bench.cpp audio/manifest.cpp audio/manifest_source.cpp audio/multi_speaker_noise.cpp audio/name_ranges.cpp open_data.cpp shard_writer.cpp tar/tar_set.cpp audio/tarred_source.cpp tensor_batch.cpp
  images/web_dataset_source.cpp)
list(APPEND DATA_TESTS ${DATA_CORE_TESTS}
  build_loader_test.cpp workers/corrupt_samples_test.cpp dataset_config_test.cpp audio/manifest_test.cpp audio/name_ranges_test.cpp shard_writer_test.cpp workers/sources_test.cpp
  tensor_batch_test.cpp workers/transforms_test.cpp)

# The worker core once more, with ThreadSanitizer: from sources, since a sanitizer must see every access.
if(REDLINE_SANITIZE_TESTS)
  set(DATA_TSAN_CORE check file_ops hash hash_crc32c log philox quantities strings time)
  list(TRANSFORM DATA_TSAN_CORE PREPEND "${CMAKE_SOURCE_DIR}/src/core/")
  list(TRANSFORM DATA_TSAN_CORE APPEND ".cpp")
  set(DATA_TSAN_MEASURE append_file faults kept_writes phases spans stage_clock)
  list(TRANSFORM DATA_TSAN_MEASURE PREPEND "${CMAKE_SOURCE_DIR}/src/measure/")
  list(TRANSFORM DATA_TSAN_MEASURE APPEND ".cpp")
  add_executable(data_tsan workers/worker_core_tsan.cpp array.cpp ${DATA_CORE_SOURCES} ${DATA_TSAN_CORE} ${DATA_TSAN_MEASURE})
  target_link_libraries(data_tsan PRIVATE redline_flags redline_fmt redline_sha256 nlohmann_json::nlohmann_json Threads::Threads)
  target_compile_options(data_tsan PRIVATE -fsanitize=thread -O1 -g1 -Wno-tsan)
  target_link_options(data_tsan PRIVATE -fsanitize=thread)
  add_test(NAME data_tsan COMMAND data_tsan)
  add_test(NAME data_tsan_planted COMMAND data_tsan --planted)
  set_tests_properties(data_tsan data_tsan_planted PROPERTIES TIMEOUT 600 ENVIRONMENT "TSAN_OPTIONS=halt_on_error=1")
  set_tests_properties(data_tsan_planted PROPERTIES WILL_FAIL TRUE)

  # The vectorised resize on the smallest pictures, with AddressSanitizer.
  add_executable(data_asan images/image_bounds_asan.cpp array.cpp workers/item_memory.cpp codecs/image_axis.cpp codecs/image_reference.cpp codecs/image_resize.cpp
    ${DATA_TSAN_CORE})
  target_link_libraries(data_asan PRIVATE redline_flags redline_fmt redline_sha256 Threads::Threads)
  target_compile_options(data_asan PRIVATE -fsanitize=address,undefined -fno-sanitize-recover=all -O1 -g1)
  target_link_options(data_asan PRIVATE -fsanitize=address,undefined)
  add_test(NAME data_asan COMMAND data_asan)
  add_test(NAME data_asan_planted COMMAND data_asan --planted)
  set_tests_properties(data_asan data_asan_planted PROPERTIES TIMEOUT 300)
  set_tests_properties(data_asan_planted PROPERTIES WILL_FAIL TRUE)
endif()
