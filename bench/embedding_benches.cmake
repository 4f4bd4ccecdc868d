# What is measured of embeddings.
add_executable(separation_bench separation_bench.cpp)
target_link_libraries(separation_bench PRIVATE redline_flags redline_models redline_train)
redline_use_torch_pch(separation_bench)
