# Tests that need more than one room's library: a model against fixtures read by train's safetensors reader.
foreach(name vae nest convnext separation lss precision)
  add_executable(${name}_fixture_test ${name}_fixture_test.cpp)
  target_link_libraries(${name}_fixture_test PRIVATE redline_flags redline_models redline_train GTest::gtest GTest::gtest_main)
  target_compile_definitions(${name}_fixture_test PRIVATE REDLINE_FIXTURES="${CMAKE_SOURCE_DIR}/tests/fixtures")
  redline_use_torch_pch(${name}_fixture_test)
  add_test(NAME ${name}_fixture COMMAND ${name}_fixture_test)
endforeach()
