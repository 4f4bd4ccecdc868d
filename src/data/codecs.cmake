list(APPEND DATA_SOURCES
  codecs/audio.cpp codecs/audio_writer.cpp codecs/flac.cpp codecs/wav.cpp
  codecs/image.cpp codecs/image_axis.cpp codecs/image_ops.cpp codecs/image_reference.cpp codecs/image_resize.cpp
  codecs/image_writer.cpp codecs/jpeg.cpp codecs/png.cpp
  parquet/parquet_cache.cpp parquet/parquet_column.cpp parquet/parquet_files.cpp parquet/parquet_lengths.cpp parquet/parquet_levels.cpp parquet/parquet_narrow.cpp parquet/parquet_source.cpp
  files/path_guard.cpp audio/resample.cpp
  synth.cpp synth/synth_config.cpp synth/synth_images.cpp synth/synth_sequences.cpp synth/synth_speech.cpp synth/synth_voice.cpp
  tar/tar_header.cpp tar_index.cpp tar/tar_writer.cpp)
list(APPEND DATA_TESTS
  codecs/audio_test.cpp codecs/image_ops_test.cpp codecs/image_resize_test.cpp codecs/image_test.cpp
  parquet/parquet_levels_test.cpp parquet/parquet_narrow_test.cpp parquet/parquet_source_test.cpp
  files/path_guard_test.cpp audio/resample_test.cpp synth_test.cpp tar/tar_test.cpp)
