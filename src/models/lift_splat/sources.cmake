list(APPEND MODELS_SOURCES
  lift_splat/bev_encoder.cpp
  lift_splat/conv_norm.cpp
  lift_splat/enlarged_conv.cpp
  lift_splat/geometry.cpp
  lift_splat/model.cpp
  lift_splat/norm_relu_fused.cpp
  lift_splat/options.cpp
  lift_splat/overlap.cpp
  lift_splat/reference_names.cpp
  lift_splat/scene_monitor.cpp
  lift_splat/scene_pictures.cpp
  lift_splat/splat.cpp
  lift_splat/splat_kernels.cpp
  lift_splat/splat_operator.cpp
  lift_splat/swin.cpp
  lift_splat/swin_attention_fused.cpp
  lift_splat/swin_kernels.cpp
  lift_splat/swin_mlp_fused.cpp
  lift_splat/task.cpp
  lift_splat/windows.cpp
  lift_splat/winograd_conv.cpp
  lift_splat/winograd_kernels.cpp
  lift_splat/work_estimate.cpp)
list(APPEND MODELS_TESTS lift_splat/enlarged_conv_test.cpp lift_splat/overlap_test.cpp lift_splat/reference_names_test.cpp lift_splat/scene_pictures_test.cpp lift_splat/splat_test.cpp lift_splat/swin_test.cpp lift_splat/task_test.cpp
  lift_splat/winograd_conv_test.cpp)
