# The sequence VAE's kernels by themselves; whole training runs are in workloads/.
add_executable(vae_step_bench vae_step_bench.cpp)
target_link_libraries(vae_step_bench PRIVATE redline_flags redline_models redline_measure)
redline_use_torch_pch(vae_step_bench)
