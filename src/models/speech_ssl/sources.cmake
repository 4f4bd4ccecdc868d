list(APPEND MODELS_SOURCES
  speech_ssl/attention_fused.cpp
  speech_ssl/block_masking.cpp
  speech_ssl/conformer.cpp
  speech_ssl/conformer_plain.cpp
  speech_ssl/convolution_fused.cpp
  speech_ssl/decoder_loss.cpp
  speech_ssl/encoder.cpp
  speech_ssl/feature_transform.cpp
  speech_ssl/feed_forward_fused.cpp
  speech_ssl/fused_parts.cpp
  speech_ssl/mel_filterbank.cpp
  speech_ssl/mel_kernel.cpp
  speech_ssl/model.cpp
  speech_ssl/multi_speaker_noise.cpp
  speech_ssl/noise.cpp
  speech_ssl/option_tables.cpp
  speech_ssl/options.cpp
  speech_ssl/preprocessor.cpp
  speech_ssl/quantizer.cpp
  speech_ssl/row_kernels.cpp
  speech_ssl/speech_kind.cpp
  speech_ssl/speech_ssl_task.cpp
  speech_ssl/subsampling.cpp
  speech_ssl/subsampling_fused.cpp
  speech_ssl/subsampling_kernels.cpp
  speech_ssl/work_estimate.cpp)
list(APPEND MODELS_TESTS speech_ssl/model_test.cpp speech_ssl/noise_test.cpp speech_ssl/speech_kind_test.cpp)
