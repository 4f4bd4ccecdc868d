# Lift-Splat-Shoot's step and splat by themselves.
add_executable(lss_step_bench lss_step_bench.cpp)
target_link_libraries(lss_step_bench PRIVATE redline_flags redline_models)
redline_use_torch_pch(lss_step_bench)
add_executable(nuscenes_tables_bench nuscenes_tables_bench.cpp)
target_link_libraries(nuscenes_tables_bench PRIVATE redline_flags redline_data)
