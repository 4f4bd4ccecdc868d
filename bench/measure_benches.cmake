# The cost of our own measuring: phase timers and the accounting allocator.
add_executable(phase_timer_bench phase_timer_bench.cpp)
target_link_libraries(phase_timer_bench PRIVATE redline_flags redline_measure redline_device)
add_executable(allocator_bench allocator_bench.cpp)
target_link_libraries(allocator_bench PRIVATE redline_flags redline_measure redline_device)
add_executable(empty_program empty_program.cpp)
target_link_libraries(empty_program PRIVATE redline_flags redline_torch)
target_link_options(empty_program PRIVATE -Wl,--no-as-needed)
