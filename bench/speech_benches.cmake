# The kernels of the speech and image models by themselves; whole training runs are in workloads/.
foreach(name speech_step_bench speech_preprocess_bench convnext_step_bench)
  add_executable(${name} ${name}.cpp)
  target_link_libraries(${name} PRIVATE redline_flags redline_models redline_measure)
  redline_use_torch_pch(${name})
endforeach()
target_link_libraries(convnext_step_bench PRIVATE redline_train)
