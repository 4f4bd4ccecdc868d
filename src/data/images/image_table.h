// Pictures with labels: a folder per class, or an index file (CSV, or JSON lines) that names pictures and labels.
#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "data/files/path_guard.h"
#include "data/source.h"

namespace redline::data {

struct ImageEntry {
  std::string file;  // relative to the table's folder, or absolute
  int64_t label = -1;
  int line = 0;  // in the index file; 0 for folders
};

struct ImageTable {
  std::vector<ImageEntry> entries;
  std::vector<std::string> classes;  // names by label; empty when labels are numbers already

  // Classes are the sub-folders in byte order. Throws DataError when there is none or no picture (.jpg, .jpeg, .png) in
  // them.
  static ImageTable from_folders(const std::filesystem::path& folder);
  // The first line of a CSV names the columns: path, file, filename, image or filepath; label, class, target or cls.
  // JSON lines use the same names. Labels are whole numbers, or names numbered in byte order. Throws DataError with the
  // line.
  static ImageTable parse_csv(std::string_view text, const std::string& name);
  static ImageTable parse_json_lines(std::string_view text, const std::string& name);
};

class ImageSource : public Source {
 public:
  // `path`: a folder or an index file (.csv, .json, .jsonl).
  ImageSource(const std::filesystem::path& path, bool allow_absolute);

  int64_t size() const override { return static_cast<int64_t>(table_.entries.size()); }
  // "image_bytes" for the picture transform, and "label".
  ReadResult read(int64_t index, measure::StageClock::Slot& slot) const override;
  double length(int64_t) const override { return 1.0; }
  std::string length_unit() const override { return "images"; }
  std::string name(int64_t index) const override { return table_.entries[static_cast<size_t>(index)].file; }
  uint64_t fingerprint() const override { return fingerprint_; }
  uint64_t content_key(int64_t index) const override;
  const std::vector<std::string>& classes() const { return table_.classes; }

 private:
  ImageTable table_;
  std::unique_ptr<PathGuard> guard_;
  uint64_t fingerprint_ = 0;
};

}  // namespace redline::data
