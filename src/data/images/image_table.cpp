#include "data/images/image_table.h"

#include <algorithm>
#include <array>
#include <map>
#include <set>

#include "core/error.h"
#include "core/hash.h"
#include "core/log.h"
#include "core/strings.h"
#include "data/audio/audio_clip.h"
#include "data/files/json_lines.h"
#include "data/workers/item_memory.h"

namespace redline::data {

namespace {

constexpr uint64_t kMaxTableBytes = uint64_t{1} << 33;
constexpr size_t kMaxCells = 4096;  // of one line: an empty cell costs 32 times its comma

bool is_picture(const std::filesystem::path& path) {
  const std::string extension = to_lower(path.extension().string());
  return extension == ".jpg" || extension == ".jpeg" || extension == ".png";
}

bool names_a_file(std::string_view key) {
  constexpr std::array<std::string_view, 6> kKeys{"path", "file", "filename", "image", "filepath", "image_path"};
  return std::find(kKeys.begin(), kKeys.end(), key) != kKeys.end();
}

bool names_a_label(std::string_view key) {
  constexpr std::array<std::string_view, 4> kKeys{"label", "class", "target", "cls"};
  return std::find(kKeys.begin(), kKeys.end(), key) != kKeys.end();
}

[[noreturn]] void table_error(const std::string& name, int line, const std::string& problem) {
  throw DataError(printable(name) + ":" + std::to_string(line) + ": " + problem);
}

// Numbers stay; names are numbered in byte order. Mixed labels count as names.
void number_labels(ImageTable& table, const std::vector<std::string>& labels) {
  const bool numbers =
      std::all_of(labels.begin(), labels.end(), [](const auto& text) { return parse_int(text).value_or(-1) >= 0; });
  std::map<std::string, int64_t> number_of;
  if (!numbers) {
    for (const auto& label : std::set<std::string>(labels.begin(), labels.end())) {
      number_of[label] = static_cast<int64_t>(table.classes.size());
      table.classes.push_back(label);
    }
  }
  for (size_t i = 0; i < labels.size(); ++i)
    table.entries[i].label = numbers ? *parse_int(labels[i]) : number_of[labels[i]];
}

// One record of a CSV with quotes; advances `at` past it. Lines in quotes count towards `line`.
std::vector<std::string> csv_record(std::string_view text, size_t& at, int& line, const std::string& name) {
  std::vector<std::string> cells(1);
  bool quoted = false;
  const int first_line = line;
  for (; at < text.size(); ++at) {
    const char c = text[at];
    if (c == '\n') ++line;
    if (quoted) {
      if (c != '"')
        cells.back() += c;
      else if (at + 1 < text.size() && text[at + 1] == '"')
        cells.back() += text[++at];
      else
        quoted = false;
    } else if (c == '"' && cells.back().empty()) {
      quoted = true;
    } else if (c == ',') {
      if (cells.size() == kMaxCells) table_error(name, first_line, "a line has more than 4096 cells.");
      cells.emplace_back();
    } else if (c == '\n') {
      ++at;
      break;
    } else if (c != '\r') {
      cells.back() += c;
    }
  }
  if (quoted) table_error(name, first_line, "a quoted cell does not end.");
  return cells;
}

// A class of one picture trains, but no pair can be made of it: losses and metrics that compare within a class say
// nothing about it.
void tell_lonely_classes(const ImageTable& table, const std::filesystem::path& path) {
  std::map<int64_t, int64_t> count;
  for (const ImageEntry& entry : table.entries) ++count[entry.label];
  std::string names;
  int64_t lonely = 0;
  for (const auto& [label, pictures] : count) {
    if (pictures != 1) continue;
    if (++lonely > 5) continue;
    const auto at = static_cast<size_t>(label);
    names += (names.empty() ? "" : ", ") + (at < table.classes.size() ? table.classes[at] : std::to_string(label));
  }
  if (lonely > 0)
    log_info(printable(path.string()) + ": " + std::to_string(lonely) + " of " + std::to_string(count.size()) +
             " classes have one picture (" + printable(names) + (lonely > 5 ? ", ..." : "") +
             "): there is nothing of its class to compare it with.");
}

}  // namespace

ImageTable ImageTable::from_folders(const std::filesystem::path& folder) {
  ImageTable table;
  std::error_code failed;
  std::vector<std::filesystem::path> classes;
  for (const auto& entry : std::filesystem::directory_iterator(folder, failed)) {
    if (entry.is_directory() && !entry.path().filename().string().starts_with('.')) classes.push_back(entry.path());
  }
  if (failed) throw DataError("Cannot list " + printable(folder.string()) + ": " + failed.message() + ".");
  std::sort(classes.begin(), classes.end());
  // Names as the listing gives them: asking the file system for each relative path takes most of a loader's start.
  const size_t prefix = (folder / "").native().size();
  for (const auto& path : classes) {
    std::vector<std::string> files;
    for (const auto& entry : std::filesystem::recursive_directory_iterator(path, failed)) {
      if (is_picture(entry.path())) files.push_back(entry.path().native().substr(prefix));
    }
    if (failed) throw DataError("Cannot list " + printable(path.string()) + ": " + failed.message() + ".");
    std::sort(files.begin(), files.end());
    for (auto& file : files) table.entries.push_back({std::move(file), static_cast<int64_t>(table.classes.size()), 0});
    table.classes.push_back(path.filename().string());
  }
  if (table.entries.empty()) {
    throw DataError(printable(folder.string()) +
                    " has no pictures in class folders: expected FOLDER/CLASS/name.jpg (.jpeg, .png).");
  }
  return table;
}

ImageTable ImageTable::parse_csv(std::string_view text, const std::string& name) {
  ImageTable table;
  std::vector<std::string> labels;
  size_t at = text.starts_with("\xEF\xBB\xBF") ? 3 : 0;
  int line = 1;
  const std::vector<std::string> header = csv_record(text, at, line, name);
  size_t file_column = SIZE_MAX, label_column = SIZE_MAX;
  for (size_t c = 0; c < header.size(); ++c) {
    const std::string key = to_lower(trim(header[c]));
    if (names_a_file(key) && file_column == SIZE_MAX) file_column = c;
    if (names_a_label(key) && label_column == SIZE_MAX) label_column = c;
  }
  if (file_column == SIZE_MAX || label_column == SIZE_MAX) {
    table_error(
        name, 1,
        "the first line must name the columns 'path' and 'label' (found: " + printable(join(header, ", ")) + ").");
  }
  while (at < text.size()) {
    const int record_line = line;
    const std::vector<std::string> cells = csv_record(text, at, line, name);
    if (cells.size() == 1 && trim(cells[0]).empty()) continue;
    if (cells.size() <= std::max(file_column, label_column)) {
      table_error(name, record_line,
                  "expected " + std::to_string(header.size()) + " cells, found " + std::to_string(cells.size()) + ".");
    }
    if (cells[file_column].empty() || cells[label_column].empty())
      table_error(name, record_line, "path or label is empty.");
    table.entries.push_back({cells[file_column], -1, record_line});
    labels.push_back(cells[label_column]);
  }
  if (table.entries.empty()) throw DataError("The table " + printable(name) + " has no rows.");
  number_labels(table, labels);
  return table;
}

ImageTable ImageTable::parse_json_lines(std::string_view text, const std::string& name) {
  ImageTable table;
  std::vector<std::string> labels;
  for_each_json_line(text, [&](JsonObjectParser& parser, std::string_view row, int line) {
    std::string file, label;
    const auto problem = parser.parse(row, [&](std::string_view key, const JsonValue& value) {
      if (names_a_file(key)) {
        if (!value.string()) table_error(name, line, "the path must be a string.");
        file = *value.string();
      }
      if (!names_a_label(key)) return;
      if (const auto number = value.whole_number())
        label = std::to_string(*number);
      else if (const auto text_label = value.string())
        label = *text_label;
      else
        table_error(name, line, "the label must be a whole number or a name.");
    });
    if (problem) table_error(name, line, *problem);
    if (file.empty() || label.empty()) table_error(name, line, "'path' or 'label' is missing.");
    table.entries.push_back({std::move(file), -1, line});
    labels.push_back(std::move(label));
  });
  if (table.entries.empty()) throw DataError("The table " + printable(name) + " has no rows.");
  number_labels(table, labels);
  return table;
}

ImageSource::ImageSource(const std::filesystem::path& path, bool allow_absolute) {
  std::error_code ignored;
  if (std::filesystem::is_directory(path, ignored)) {
    table_ = ImageTable::from_folders(path);
    guard_ = std::make_unique<PathGuard>(path, false);
  } else {
    const DataFile file = open_user_file(path);
    if (file.size() > kMaxTableBytes)
      throw DataError("The table " + printable(path.string()) + " is larger than 8 GiB.");
    std::string text(file.size(), '\0');
    if (!file.read_at(0, std::as_writable_bytes(std::span(text))))
      throw DataError("The table " + printable(path.string()) + " cannot be read to its end.");
    const std::string extension = to_lower(path.extension().string());
    if (extension == ".csv")
      table_ = ImageTable::parse_csv(text, path.string());
    else if (extension == ".json" || extension == ".jsonl")
      table_ = ImageTable::parse_json_lines(text, path.string());
    else
      throw DataError(printable(path.string()) +
                      " is neither a folder of class folders nor an index (.csv, .jsonl, .json).");
    guard_ = std::make_unique<PathGuard>(std::filesystem::absolute(path).parent_path(), allow_absolute);
  }
  tell_lonely_classes(table_, path);
  fingerprint_ = table_.entries.size();
  for (const ImageEntry& entry : table_.entries)
    fingerprint_ = mix_key(hash64(entry.file, fingerprint_), static_cast<uint64_t>(entry.label));
}

ReadResult ImageSource::read(int64_t index, measure::StageClock::Slot& slot) const {
  const ImageEntry& entry = table_.entries[static_cast<size_t>(index)];
  const measure::StageScope scope(slot, measure::Stage::Read);
  BadSample bad;
  const auto file = open_sample(*guard_, entry.file, entry.file, bad);
  if (!file) return bad;
  if (file->size() == 0) return BadSample{entry.file, "The file has 0 bytes."};
  if (!charge_memory(file->size())) return BadSample{entry.file, too_large_text()};
  Array bytes = Array::empty(Dtype::U8, {static_cast<int64_t>(file->size())});
  if (!file->read_at(0, std::as_writable_bytes(bytes.as<uint8_t>())))
    return BadSample{entry.file, "The file could not be read to its end."};
  count_bytes(slot, bytes.num_bytes());
  Sample sample;
  sample.set("image_bytes", std::move(bytes));
  Array label = Array::empty(Dtype::I64, {});
  label.as<int64_t>()[0] = entry.label;
  sample.set("label", std::move(label));
  return sample;
}

uint64_t ImageSource::content_key(int64_t index) const {
  const ImageEntry& entry = table_.entries[static_cast<size_t>(index)];
  uint64_t key = mix_key(hash64(entry.file, 1), static_cast<uint64_t>(entry.label));
  const OpenResult opened = guard_->open(entry.file);
  if (const auto* file = std::get_if<DataFile>(&opened))
    key = mix_key(mix_key(key, file->size()), static_cast<uint64_t>(file->mtime_ns()));
  return key;
}

}  // namespace redline::data
