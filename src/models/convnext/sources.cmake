list(APPEND MODELS_SOURCES convnext/baseline.cpp convnext/block_fused.cpp convnext/block_plain.cpp convnext/depthwise.cpp
  convnext/losses.cpp convnext/mlp_panels.cpp convnext/mlp_panels_bf16.cpp convnext/model.cpp convnext/options.cpp convnext/patch_fused.cpp convnext/row_kernels.cpp
  convnext/task.cpp convnext/reference_names.cpp)
list(APPEND MODELS_TESTS convnext/block_test.cpp convnext/depthwise_test.cpp convnext/losses_test.cpp convnext/task_test.cpp convnext/reference_names_test.cpp)
