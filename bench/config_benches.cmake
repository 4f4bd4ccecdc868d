add_executable(config_bench ${CMAKE_CURRENT_SOURCE_DIR}/config_bench.cpp)
target_link_libraries(config_bench PRIVATE redline_flags redline_config benchmark::benchmark)
