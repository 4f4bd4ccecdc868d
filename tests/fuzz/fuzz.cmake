# Readers of files we do not trust under libFuzzer, AddressSanitizer and UBSan. libFuzzer is clang's, so what needs no LibTorch is compiled
# again with clang, in a batch or two per room. tests/fuzz/run drives the program; tests/fuzz/coverage builds it once more and counts lines.
if(NOT REDLINE_SANITIZE_TESTS)
  return()
endif()
find_program(REDLINE_CLANG clang++-14)
if(NOT REDLINE_CLANG)
  message(STATUS "clang++-14 is not here: the fuzzing programs are built once `make test` has installed it")
  return()
endif()

set(FUZZ_LISTS "${CMAKE_CURRENT_LIST_DIR}/ignored.txt" "${CMAKE_CURRENT_LIST_DIR}/unguided.txt")
set(FUZZ_COMMON -std=c++20 -g1 -O2 -fno-omit-frame-pointer -Wall -Wextra -Werror -D_GLIBCXX_USE_CXX11_ABI=1
  "-DREDLINE_FIXTURES=\"${CMAKE_SOURCE_DIR}/tests/fixtures\"" "-I${CMAKE_SOURCE_DIR}/src" "-I${CMAKE_CURRENT_LIST_DIR}")
if(REDLINE_HAS_V3)
  list(APPEND FUZZ_COMMON -march=x86-64-v3)
endif()
foreach(library redline_fmt redline_rapidjson redline_sha256 redline_arrow redline_flac redline_sndfile redline_turbojpeg PNG::PNG nlohmann_json::nlohmann_json yaml-cpp)
  get_target_property(directories ${library} INTERFACE_INCLUDE_DIRECTORIES)
  foreach(directory ${directories})
    if(IS_DIRECTORY "${directory}" AND NOT directory STREQUAL "/usr/include")
      list(APPEND FUZZ_COMMON -isystem "${directory}")
    endif()
  endforeach()
endforeach()

# What a reader needs of each room: its files without LibTorch, less those that read nothing from outside.
set(FUZZ_CORE_LESS "")
set(FUZZ_CONFIG_LESS "^describe")
set(FUZZ_MEASURE_LESS "(^|/)(csv|progress|protobuf|tfevents|trace)\\.cpp")
string(CONCAT FUZZ_DATA_LESS "(^|/)(array|bad_samples|concat|disk_cache|feature_cache|image_transforms|audio_transforms|length_buckets|"
  "loader|memory_source|name_ranges|ordered_loader|plan|sample_chain|sequence|shard_writer|shuffle|step_split|"
  "stretch|worker_queue|kind|audio_kind|audio_options|image_kind|image_options|table_kind|clip_bank|synth|dataset_)[a-z_]*\\.cpp|image_ops|image_affine|camera_transform|nuscenes_|scene_picture|rand_augment|random_erasing|mix_pictures|augment_options")
set(FUZZ_TRAIN checkpoint/block_reader.cpp checkpoint/manifest.cpp loop/loop_state.cpp)
list(TRANSFORM FUZZ_TRAIN PREPEND "${CMAKE_SOURCE_DIR}/src/train/")
file(GLOB FUZZ_OWN "${CMAKE_CURRENT_LIST_DIR}/*.cpp")

# fuzz_batches(KIND NAME SIZE FILES...): objects of up to SIZE files each, added to FUZZ_OBJECTS.
function(fuzz_batches KIND NAME SIZE)
  set(files ${ARGN})
  set(number 0)
  while(files)
    list(SUBLIST files 0 ${SIZE} some)
    list(REMOVE_ITEM files ${some})
    set(batch "${CMAKE_BINARY_DIR}/fuzz/${KIND}/${NAME}_${number}")
    list(TRANSFORM some REPLACE "(.+)" "#include \"\\1\"\n" OUTPUT_VARIABLE text)
    string(REPLACE ";" "" text "${text}")
    file(CONFIGURE OUTPUT "${batch}.cpp" CONTENT "${text}" @ONLY)
    add_custom_command(OUTPUT "${batch}.o" DEPENDS "${batch}.cpp" ${some} ${FUZZ_LISTS} DEPFILE "${batch}.d" VERBATIM COMMENT "clang: ${NAME}_${number}"
      COMMAND ${REDLINE_CCACHE} ${REDLINE_CLANG} ${FUZZ_COMMON} ${FUZZ_FLAGS} -MD -MF "${batch}.d" -MT "${batch}.o" -c "${batch}.cpp" -o "${batch}.o")
    list(APPEND FUZZ_OBJECTS "${batch}.o")
    math(EXPR number "${number} + 1")
  endwhile()
  set(FUZZ_OBJECTS ${FUZZ_OBJECTS} PARENT_SCOPE)
endfunction()

set(FUZZ_LINK ${CRYPTO_ARCHIVE} -Wl,--exclude-libs,libcrypto.a ${REDLINE_LIBARROW} ${REDLINE_LIBPARQUET}
  "-Wl,-rpath,${REDLINE_SITE}/pyarrow" ${FLAC_LIBRARY} ${SNDFILE_LIBRARY} ${TURBOJPEG_LIBRARY} ${PNG_LIBRARIES} -lyaml-cpp -lz -lpthread -ldl)

# fuzz_program(NAME FLAGS...): the program of all targets, compiled with the flags.
function(fuzz_program PROGRAM)
  set(FUZZ_FLAGS ${ARGN})
  set(FUZZ_OBJECTS "")
  foreach(room core config measure data)
    string(TOUPPER ${room} name)
    get_target_property(sources redline_${room}_plain SOURCES)
    if(FUZZ_${name}_LESS)
      list(FILTER sources EXCLUDE REGEX "${FUZZ_${name}_LESS}")
    endif()
    list(TRANSFORM sources PREPEND "${CMAKE_SOURCE_DIR}/src/${room}/")
    fuzz_batches(${PROGRAM} ${room} 18 ${sources})
  endforeach()
  fuzz_batches(${PROGRAM} train 18 ${FUZZ_TRAIN})
  fuzz_batches(${PROGRAM} own 18 ${FUZZ_OWN})
  fuzz_batches(${PROGRAM} fmt 1 "${CMAKE_SOURCE_DIR}/cmake/fmt/format.cpp")
  add_custom_command(OUTPUT "${CMAKE_BINARY_DIR}/${PROGRAM}" DEPENDS ${FUZZ_OBJECTS} VERBATIM COMMENT "clang: linking ${PROGRAM}"
    COMMAND ${REDLINE_CLANG} ${FUZZ_FLAGS} -fsanitize=fuzzer ${FUZZ_OBJECTS} -o "${CMAKE_BINARY_DIR}/${PROGRAM}" ${FUZZ_LINK})
endfunction()

fuzz_program(fuzz_readers -fsanitize=fuzzer-no-link,address,undefined -fno-sanitize-recover=all
  "-fsanitize-ignorelist=${CMAKE_CURRENT_LIST_DIR}/ignored.txt" "-fsanitize-coverage-ignorelist=${CMAKE_CURRENT_LIST_DIR}/unguided.txt")
add_custom_target(fuzz ALL DEPENDS "${CMAKE_BINARY_DIR}/fuzz_readers")

# What needs LibTorch, built by `make test-slow`: the rooms as they are, with the readers among them compiled again in front of them.
function(fuzz_jobs_program)
  set(FUZZ_FLAGS -fsanitize=fuzzer-no-link,address,undefined -fno-sanitize=vptr -fno-sanitize-recover=all -DREDLINE_FUZZ_WITH_TORCH)
  foreach(directory "${CMAKE_SOURCE_DIR}/cmake/narrow" "${REDLINE_SITE}/torch/include" "${REDLINE_SITE}/torch/include/torch/csrc/api/include")
    list(APPEND FUZZ_COMMON -isystem "${directory}")
  endforeach()
  set(train files/safetensors.cpp checkpoint/loading.cpp testing/example_task.cpp testing/harness.cpp)
  list(TRANSFORM train PREPEND "${CMAKE_SOURCE_DIR}/src/train/")
  set(FUZZ_OBJECTS "")
  fuzz_batches(fuzz_jobs jobs 18 ${train} "${CMAKE_SOURCE_DIR}/tests/fuzz/jobs/job_targets.cpp")
  fuzz_batches(fuzz_jobs harness 1 "${CMAKE_SOURCE_DIR}/tests/fuzz/harness.cpp")
  list(APPEND FUZZ_OBJECTS "${CMAKE_BINARY_DIR}/fuzz/fuzz_readers/config_0.o" "${CMAKE_BINARY_DIR}/fuzz/fuzz_readers/train_0.o")
  set(rooms train task data measure device config core)
  list(TRANSFORM rooms PREPEND redline_)
  list(TRANSFORM rooms REPLACE "(.+)" "$<TARGET_FILE:\\1>" OUTPUT_VARIABLE archives)
  add_custom_command(OUTPUT "${CMAKE_BINARY_DIR}/fuzz_jobs" DEPENDS ${FUZZ_OBJECTS} ${rooms} redline_fmt VERBATIM COMMENT "clang: linking fuzz_jobs"
    COMMAND ${REDLINE_CLANG} ${FUZZ_FLAGS} -fsanitize=fuzzer ${FUZZ_OBJECTS} -o "${CMAKE_BINARY_DIR}/fuzz_jobs" -Wl,--allow-multiple-definition
      -Wl,--start-group ${archives} $<TARGET_FILE:redline_fmt> -Wl,--end-group "${REDLINE_SITE}/torch/lib/libtorch.so"
      "${REDLINE_SITE}/torch/lib/libtorch_cpu.so" "${REDLINE_SITE}/torch/lib/libc10.so" "${REDLINE_GOMP}" ${FUZZ_LINK}
      "-Wl,-rpath,${REDLINE_SITE}/torch/lib")
  add_custom_target(fuzz_with_torch DEPENDS "${CMAKE_BINARY_DIR}/fuzz_jobs")
endfunction()
fuzz_jobs_program()

fuzz_program(fuzz_coverage -fsanitize=fuzzer-no-link -fprofile-instr-generate -fcoverage-mapping)
add_custom_target(fuzz_lines DEPENDS "${CMAKE_BINARY_DIR}/fuzz_coverage")  # built by tests/fuzz/coverage

add_test(NAME fuzz COMMAND "${REDLINE_VENV}/bin/python" "${CMAKE_CURRENT_LIST_DIR}/run" --build "${CMAKE_BINARY_DIR}")
# The control: with a bug behind each reader, libFuzzer must end in AddressSanitizer's report.
add_test(NAME fuzz_planted COMMAND "${REDLINE_VENV}/bin/python" "${CMAKE_CURRENT_LIST_DIR}/run" --build "${CMAKE_BINARY_DIR}" --planted)
set_tests_properties(fuzz fuzz_planted PROPERTIES TIMEOUT 36000 ENVIRONMENT "PYTHONDONTWRITEBYTECODE=1")
