# What must survive a crash: safetensors, checkpoint generations, verify, diff, convert, and the crash-state harness.
list(APPEND TRAIN_SOURCES
  chaos.cpp child/child_process.cpp child/child_seal.cpp convert.cpp diff.cpp files/safetensors.cpp verify.cpp
  checkpoint/block_reader.cpp testing/fault_file_ops.cpp checkpoint/generation.cpp checkpoint/interval.cpp checkpoint/loading.cpp
  checkpoint/manifest.cpp checkpoint/options.cpp checkpoint/retention.cpp checkpoint/sample_log.cpp
  checkpoint/snapshot.cpp checkpoint/store.cpp)
list(APPEND TRAIN_TESTS
  child/child_process_test.cpp diff_test.cpp files/safetensors_test.cpp
  checkpoint/crash_states_test.cpp checkpoint/damage_test.cpp checkpoint/interval_test.cpp checkpoint/manifest_test.cpp
  checkpoint/retention_test.cpp testing/simulated_disk.cpp checkpoint/store_test.cpp ../core/testing/memory_file_ops.cpp)

set_source_files_properties(convert.cpp PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON
  COMPILE_DEFINITIONS "REDLINE_SOURCE_DIR=\"${CMAKE_SOURCE_DIR}\"")
