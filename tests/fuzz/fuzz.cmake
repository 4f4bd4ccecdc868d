# Parsers of data files under AddressSanitizer and UBSan, compiled again from their sources without torch. 10,000 mutated files per parser
# here, 100,000 with REDLINE_SLOW=1; one planted bug must be found (fuzz_planted).
if(REDLINE_SANITIZE_TESTS)
  set(FUZZ_DATA audio_clip.cpp codecs/audio.cpp codecs/audio_writer.cpp codecs/flac.cpp codecs/image.cpp codecs/image_axis.cpp codecs/image_reference.cpp
    codecs/image_resize.cpp codecs/image_writer.cpp codecs/jpeg.cpp codecs/png.cpp codecs/wav.cpp image_table.cpp item_memory.cpp manifest.cpp parquet_column.cpp
    parquet_files.cpp parquet_levels.cpp path_guard.cpp resample.cpp tar_header.cpp tar_index.cpp tar_writer.cpp)
  set(FUZZ_CORE check.cpp file_ops.cpp hash.cpp hash_crc32c.cpp hash_sha256.cpp log.cpp philox.cpp quantities.cpp strings.cpp time.cpp)
  set(FUZZ_MEASURE faults.cpp phases.cpp spans.cpp stage_clock.cpp)
  list(TRANSFORM FUZZ_DATA PREPEND "${CMAKE_SOURCE_DIR}/src/data/")
  list(TRANSFORM FUZZ_CORE PREPEND "${CMAKE_SOURCE_DIR}/src/core/")
  list(TRANSFORM FUZZ_MEASURE PREPEND "${CMAKE_SOURCE_DIR}/src/measure/")
  set(FUZZ_OWN audio_targets.cpp image_targets.cpp parquet_targets.cpp plain_array.cpp tar_targets.cpp text_targets.cpp)
  list(TRANSFORM FUZZ_OWN PREPEND "${CMAKE_CURRENT_LIST_DIR}/")
  set(FUZZ_FLAGS -fsanitize=address,undefined -fno-sanitize-recover=all -fno-omit-frame-pointer -g1 -O1)

  add_library(fuzz_parts STATIC ${FUZZ_OWN} ${FUZZ_DATA} ${FUZZ_CORE} ${FUZZ_MEASURE})
  target_compile_options(fuzz_parts PRIVATE ${FUZZ_FLAGS})
  target_compile_definitions(fuzz_parts PRIVATE REDLINE_FIXTURES="${CMAKE_SOURCE_DIR}/tests/fixtures")
  target_link_libraries(fuzz_parts PUBLIC redline_flags redline_fmt simdjson::simdjson redline_arrow redline_flac redline_turbojpeg PNG::PNG
    nlohmann_json::nlohmann_json z Threads::Threads)
  foreach(kind parsers planted)
    add_executable(fuzz_${kind} "${CMAKE_CURRENT_LIST_DIR}/driver.cpp" "${CMAKE_CURRENT_LIST_DIR}/mutate.cpp"
      "${CMAKE_CURRENT_LIST_DIR}/planted_targets.cpp")
    target_compile_options(fuzz_${kind} PRIVATE ${FUZZ_FLAGS})
    target_link_options(fuzz_${kind} PRIVATE -fsanitize=address,undefined)
    target_link_libraries(fuzz_${kind} PRIVATE fuzz_parts)
  endforeach()
  target_compile_definitions(fuzz_planted PRIVATE REDLINE_PLANTED_BUG)

  add_test(NAME fuzz_parsers COMMAND fuzz_parsers)
  set_tests_properties(fuzz_parsers PROPERTIES TIMEOUT 1800)
  # The control: the same harness on a parser with one bug must end in AddressSanitizer's report.
  add_test(NAME fuzz_finds_planted_bug COMMAND fuzz_planted planted)
  set_tests_properties(fuzz_finds_planted_bug PROPERTIES TIMEOUT 300 PASS_REGULAR_EXPRESSION "heap-buffer-overflow")
endif()
