include(engine_core.cmake)
list(APPEND DATA_SOURCES ${DATA_CORE_SOURCES}
  audio_clip.cpp audio_transforms.cpp build_loader.cpp dataset_config.cpp dataset_fields.cpp image_table.cpp image_transforms.cpp
  manifest.cpp manifest_source.cpp multi_speaker_noise.cpp name_ranges.cpp open_data.cpp tar_set.cpp tarred_source.cpp tensor_batch.cpp
  web_dataset_source.cpp)
list(APPEND DATA_TESTS ${DATA_CORE_TESTS}
  manifest_test.cpp name_ranges_test.cpp sources_test.cpp transforms_test.cpp)
