list(APPEND DATA_SOURCES
  codecs/audio.cpp codecs/audio_writer.cpp codecs/flac.cpp codecs/wav.cpp
  codecs/image.cpp codecs/image_axis.cpp codecs/image_ops.cpp codecs/image_reference.cpp codecs/image_resize.cpp
  codecs/image_writer.cpp codecs/jpeg.cpp codecs/png.cpp
  parquet_cache.cpp parquet_column.cpp parquet_files.cpp parquet_lengths.cpp parquet_levels.cpp parquet_narrow.cpp parquet_source.cpp
  path_guard.cpp resample.cpp
  synth.cpp synth_config.cpp synth_images.cpp synth_sequences.cpp synth_speech.cpp synth_voice.cpp
  tar_header.cpp tar_index.cpp tar_writer.cpp)
list(APPEND DATA_TESTS
  codecs/audio_test.cpp codecs/image_ops_test.cpp codecs/image_resize_test.cpp codecs/image_test.cpp
  parquet_levels_test.cpp parquet_narrow_test.cpp parquet_source_test.cpp
  path_guard_test.cpp resample_test.cpp synth_test.cpp tar_test.cpp)
