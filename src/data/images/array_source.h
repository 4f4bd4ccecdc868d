// Pictures that are numbers already: one array of all of them, as .npy or in a safetensors file, with their labels.
// Floats [N, C, H, W] are taken as they are, normalised by whoever made them; bytes [N, H, W, C] or [N, H, W] are
// pictures like any other. Rows are read when they are asked for.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "data/files/path_guard.h"
#include "data/source.h"

namespace redline::data {

class ArraySource : public Source {
 public:
  // `path`: x.npy, with labels in x_labels.npy or labels.npy beside it; or x.safetensors with "images" and "labels".
  // Throws DataError saying what is missing or does not fit.
  explicit ArraySource(const std::filesystem::path& path);
  static bool names_arrays(const std::filesystem::path& path);  // by its ending

  int64_t size() const override { return static_cast<int64_t>(labels_.size()); }
  // "image" F32 [C, H, W], or U8 [H, W, 3] (a single channel is tripled), and "label".
  ReadResult read(int64_t index, measure::StageClock::Slot& slot) const override;
  double length(int64_t) const override { return 1.0; }
  std::string length_unit() const override { return "images"; }
  std::string name(int64_t index) const override { return name_ + " row " + std::to_string(index); }
  uint64_t fingerprint() const override { return fingerprint_; }
  bool floats() const { return dtype_ == Dtype::F32; }
  const Shape& picture_shape() const { return picture_; }

 private:
  // Where an array lies in its file.
  struct Stored {
    DataFile file;
    Dtype dtype = Dtype::F32;
    Shape shape;
    uint64_t begin = 0;
  };
  static Stored open_npy(const std::filesystem::path& path);
  static Stored open_tensor(const std::filesystem::path& path, const std::vector<std::string>& names);
  void take_pictures(Stored stored);
  void take_labels(const Stored& stored);

  std::string name_;
  DataFile file_;
  Dtype dtype_ = Dtype::F32;
  Shape picture_;  // of a row as stored
  int64_t rows_ = 0;
  uint64_t begin_ = 0, row_bytes_ = 0, fingerprint_ = 0;
  std::vector<int64_t> labels_;
};

}  // namespace redline::data
