list(APPEND MODELS_SOURCES
  sequence_vae/aggressive.cpp sequence_vae/collapse.cpp
  sequence_vae/free_bits.cpp sequence_vae/generate.cpp sequence_vae/history.cpp sequence_vae/kl_schedule.cpp
  sequence_vae/lstm.cpp sequence_vae/monitor.cpp sequence_vae/options.cpp sequence_vae/plots.cpp
  sequence_vae/posterior_statistics.cpp sequence_vae/posterior_window.cpp sequence_vae/sequence_model.cpp
  sequence_vae/task.cpp sequence_vae/task_part.cpp sequence_vae/task_state.cpp sequence_vae/transform.cpp sequence_vae/transformer.cpp
  sequence_vae/transformer_layer.cpp sequence_vae/transformer_layer_padded.cpp)
list(APPEND MODELS_TESTS
  sequence_vae/aggressive_test.cpp sequence_vae/collapse_test.cpp sequence_vae/free_bits_test.cpp
  sequence_vae/generate_test.cpp sequence_vae/kl_schedule_test.cpp sequence_vae/monitor_test.cpp sequence_vae/plots_test.cpp
  sequence_vae/posterior_statistics_test.cpp sequence_vae/task_test.cpp sequence_vae/training_test.cpp
  sequence_vae/transform_test.cpp)
