# What the loop, the optimiser and keyed dropout cost, each interleaved with what they replace.
foreach(name dropout optimiser loop guards)
  add_executable(${name}_bench ${name}_bench.cpp)
  target_link_libraries(${name}_bench PRIVATE redline_flags redline_train redline_measure)
  redline_use_torch_pch(${name}_bench)
endforeach()
foreach(name loop guards)
  target_sources(${name}_bench PRIVATE ${CMAKE_SOURCE_DIR}/src/train/testing/example_task.cpp)
endforeach()
# The tuner's search against measured grids (bench/results, search_model).
add_executable(simulate tuner/simulate.cpp)
target_link_libraries(simulate PRIVATE redline_flags redline_tune redline_measure)
# A job's step eager, by operators alone, and compiled.
add_executable(compiled_step_bench compiled_step_bench.cpp)
target_link_libraries(compiled_step_bench PRIVATE redline_flags redline_models redline_train redline_measure)
redline_use_torch_pch(compiled_step_bench)
