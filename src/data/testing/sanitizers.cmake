# Programs that compile parts of this room again, under a sanitizer.
# The worker core once more, with ThreadSanitizer: from sources, since a sanitizer must see every access.
if(REDLINE_SANITIZE_TESTS)
  set(DATA_TSAN_CORE check file_ops hash hash_crc32c log philox quantities strings time)
  list(TRANSFORM DATA_TSAN_CORE PREPEND "${CMAKE_SOURCE_DIR}/src/core/")
  list(TRANSFORM DATA_TSAN_CORE APPEND ".cpp")
  set(DATA_TSAN_MEASURE append_file faults kept_writes phases spans stage_clock)
  list(TRANSFORM DATA_TSAN_MEASURE PREPEND "${CMAKE_SOURCE_DIR}/src/measure/")
  list(TRANSFORM DATA_TSAN_MEASURE APPEND ".cpp")
  # Plan, cache and workers are free of torch, but for the bench of a loader.
  set(DATA_TSAN_ROOM array.cpp files/stream_copy.cpp ${DATA_plan} ${DATA_cache} ${DATA_workers})
  list(REMOVE_ITEM DATA_TSAN_ROOM workers/loader_bench.cpp)
  add_executable(data_tsan testing/worker_core_tsan.cpp ${DATA_TSAN_ROOM} ${DATA_TSAN_CORE} ${DATA_TSAN_MEASURE})
  target_link_libraries(data_tsan PRIVATE redline_flags redline_fmt redline_sha256 nlohmann_json::nlohmann_json Threads::Threads)
  target_compile_options(data_tsan PRIVATE -fsanitize=thread -O1 -g1 -Wno-tsan)
  target_link_options(data_tsan PRIVATE -fsanitize=thread)
  add_test(NAME data_tsan COMMAND data_tsan)
  add_test(NAME data_tsan_planted COMMAND data_tsan --planted)
  set_tests_properties(data_tsan data_tsan_planted PROPERTIES TIMEOUT 600 ENVIRONMENT "TSAN_OPTIONS=halt_on_error=1")
  set_tests_properties(data_tsan_planted PROPERTIES WILL_FAIL TRUE)

  # The vectorised resize on the smallest pictures, with AddressSanitizer.
  add_executable(data_asan testing/image_bounds_asan.cpp array.cpp workers/item_memory.cpp codecs/image_axis.cpp codecs/image_reference.cpp codecs/image_resize.cpp
    ${DATA_TSAN_CORE})
  target_link_libraries(data_asan PRIVATE redline_flags redline_fmt redline_sha256 Threads::Threads)
  target_compile_options(data_asan PRIVATE -fsanitize=address,undefined -fno-sanitize-recover=all -O1 -g1)
  target_link_options(data_asan PRIVATE -fsanitize=address,undefined)
  add_test(NAME data_asan COMMAND data_asan)
  add_test(NAME data_asan_planted COMMAND data_asan --planted)
  set_tests_properties(data_asan data_asan_planted PROPERTIES TIMEOUT 300)
  set_tests_properties(data_asan_planted PROPERTIES WILL_FAIL TRUE)
endif()
