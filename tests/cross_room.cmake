# Tests that need more than one room's library: a model against fixtures read by train's safetensors reader.
add_executable(vae_fixture_test vae_fixture_test.cpp)
target_link_libraries(vae_fixture_test PRIVATE redline_flags redline_models redline_train GTest::gtest GTest::gtest_main)
target_compile_definitions(vae_fixture_test PRIVATE REDLINE_FIXTURES="${CMAKE_SOURCE_DIR}/tests/fixtures")
redline_use_torch_pch(vae_fixture_test)
add_test(NAME vae_fixture COMMAND vae_fixture_test)
