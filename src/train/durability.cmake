# What must survive a crash: safetensors, checkpoint generations, verify, diff, convert, and the crash-state harness.
list(APPEND TRAIN_SOURCES
  safetensors.cpp safetensors_header.cpp safetensors_header_text.cpp
  checkpoint/block_reader.cpp)
list(APPEND TRAIN_TESTS
  safetensors_header_test.cpp safetensors_test.cpp)

# Parsers of files we do not trust, under AddressSanitizer and UBSan; the sources are compiled again, without torch.
if(REDLINE_SANITIZE_TESTS)
  add_executable(train_fuzz safetensors_fuzz.cpp safetensors_header.cpp safetensors_header_text.cpp checkpoint/block_reader.cpp
    ../core/check.cpp ../core/hash.cpp ../core/hash_crc32c.cpp ../core/hash_sha256.cpp ../core/philox.cpp ../core/quantities.cpp
    ../core/strings.cpp)
  target_compile_options(train_fuzz PRIVATE -fsanitize=address,undefined -fno-sanitize-recover=all -g -O1)
  target_link_options(train_fuzz PRIVATE -fsanitize=address,undefined)
  target_link_libraries(train_fuzz PRIVATE redline_flags Threads::Threads)
  add_test(NAME train_fuzz COMMAND train_fuzz)
  set_tests_properties(train_fuzz PROPERTIES TIMEOUT 900)
endif()
