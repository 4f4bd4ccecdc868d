# fp32 against bf16-mixed, all tasks in one program.
add_executable(precision_bench precision_bench.cpp)
target_link_libraries(precision_bench PRIVATE redline_flags redline_models redline_measure redline_device)
redline_use_torch_pch(precision_bench)
