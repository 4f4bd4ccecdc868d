list(APPEND MODELS_SOURCES layers/attention_kernel.cpp layers/batch_norm.cpp layers/bias_activation.cpp layers/gemm.cpp layers/gemm_bf16.cpp layers/keyed_init.cpp layers/linear_cross_entropy.cpp
  layers/norm_rows.cpp layers/packed_attention.cpp layers/packed_embedding.cpp layers/packed_rows.cpp layers/packed_weights.cpp layers/panel_gemm.cpp layers/panel_gemm_bf16.cpp layers/recompute.cpp layers/residual_norm.cpp layers/row_dropout.cpp
  layers/row_linear.cpp)
list(APPEND MODELS_TESTS layers/batch_norm_test.cpp layers/bf16_layers_test.cpp layers/fused_rows_test.cpp layers/packed_attention_test.cpp layers/packed_rows_test.cpp layers/packed_weights_test.cpp layers/panel_gemm_bf16_test.cpp layers/panel_gemm_test.cpp layers/row_linear_test.cpp)
