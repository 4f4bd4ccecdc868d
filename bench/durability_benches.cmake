# What checkpoints cost a run, and what verifying them costs a load.
add_executable(checkpoint_bench checkpoint_bench.cpp)
target_link_libraries(checkpoint_bench PRIVATE redline_flags redline_train)
redline_use_torch_pch(checkpoint_bench)
