#include "data/images/array_source.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "core/error.h"
#include "core/hash.h"
#include "core/safetensors_header.h"
#include "core/strings.h"
#include "data/audio/audio_clip.h"
#include "data/files/npy.h"
#include "data/workers/item_memory.h"

namespace redline::data {

namespace {

std::string shape_words(const Shape& shape) {
  std::string text = "[";
  for (size_t i = 0; i < shape.size(); ++i) text += (i > 0 ? ", " : "") + std::to_string(shape[i]);
  return text + "]";
}

[[noreturn]] void array_error(const std::string& name, const std::string& problem) {
  throw DataError(printable(name) + ": " + problem);
}

std::optional<Dtype> plain_type(StoredType type) {
  switch (type) {
    case StoredType::F32:
      return Dtype::F32;
    case StoredType::F64:
      return Dtype::F64;
    case StoredType::I32:
      return Dtype::I32;
    case StoredType::I64:
      return Dtype::I64;
    case StoredType::U8:
      return Dtype::U8;
    default:
      return std::nullopt;
  }
}

std::filesystem::path labels_beside(const std::filesystem::path& path) {
  std::error_code ignored;
  const std::filesystem::path own = path.parent_path() / (path.stem().string() + "_labels.npy"),
                              shared = path.parent_path() / "labels.npy";
  for (const auto& file : {own, shared})
    if (file != path && std::filesystem::exists(file, ignored)) return file;
  array_error(path.string(), "its labels were not found: expected " + printable(own.filename().string()) +
                                 " or labels.npy beside it, an array of whole numbers, one for each picture.");
}

}  // namespace

bool ArraySource::names_arrays(const std::filesystem::path& path) {
  const std::string extension = to_lower(path.extension().string());
  return extension == ".npy" || extension == ".safetensors";
}

ArraySource::Stored ArraySource::open_npy(const std::filesystem::path& path) {
  Stored stored;
  stored.file = open_user_file(path);
  std::vector<std::byte> head(static_cast<size_t>(std::min(kNpyHeadBytes, stored.file.size())));
  if (!stored.file.read_at(0, head)) array_error(path.string(), "the file could not be read.");
  auto parsed = parse_npy(head, stored.file.size());
  if (const auto* refusal = std::get_if<codecs::Refusal>(&parsed)) array_error(path.string(), refusal->reason + ".");
  const NpyHeader& header = std::get<NpyHeader>(parsed);
  stored.dtype = header.dtype;
  stored.shape = header.shape;
  stored.begin = header.data_begin;
  return stored;
}

ArraySource::Stored ArraySource::open_tensor(const std::filesystem::path& path, const std::vector<std::string>& names) {
  Stored stored;
  stored.file = open_user_file(path);
  std::array<uint8_t, 8> prefix{};
  if (!stored.file.read_at(0, std::as_writable_bytes(std::span(prefix))))
    array_error(path.string(), "the file is too short to be a safetensors file.");
  std::string found;
  try {
    const uint64_t length = parse_header_length(prefix, stored.file.size(), path.string());
    std::string text(static_cast<size_t>(length), '\0');
    if (!stored.file.read_at(8, std::as_writable_bytes(std::span(text))))
      array_error(path.string(), "its header could not be read.");
    const StoredHeader header = parse_stored_header(text, stored.file.size() - 8 - length, path.string());
    for (const StoredEntry& entry : header.entries) {
      if (found.size() < 200) found += (found.empty() ? "" : ", ") + printable(entry.name);
      if (std::find(names.begin(), names.end(), entry.name) == names.end()) continue;
      const auto type = plain_type(entry.type);
      if (!type)
        array_error(path.string(), "'" + printable(entry.name) + "' is of type " +
                                       std::string(stored_type_name(entry.type)) +
                                       "; float32 or uint8 pictures and whole numbers as labels are read.");
      stored.dtype = *type;
      stored.shape = entry.shape;
      stored.begin = 8 + length + entry.begin;
      return stored;
    }
  } catch (const CheckpointError& error) {
    throw DataError(error.what());
  }
  array_error(path.string(), "it has no tensor '" + names[0] + "' (it has: " + found + ").");
}

void ArraySource::take_pictures(Stored stored) {
  const Shape& shape = stored.shape;
  const bool floats = stored.dtype == Dtype::F32 && shape.size() == 4;
  const bool bytes =
      stored.dtype == Dtype::U8 && (shape.size() == 3 || (shape.size() == 4 && (shape[3] == 1 || shape[3] == 3)));
  if (!floats && !bytes)
    array_error(name_, "it is " + std::string(dtype_name(stored.dtype)) + " " + shape_words(shape) +
                           "; expected pictures as float32 [N, C, H, W] or uint8 [N, H, W, 3] or [N, H, W].");
  if (std::any_of(shape.begin(), shape.end(), [](int64_t size) { return size < 1; }))
    array_error(name_, "it holds no pictures: its shape is " + shape_words(shape) + ".");
  file_ = std::move(stored.file);
  dtype_ = stored.dtype;
  begin_ = stored.begin;
  rows_ = shape[0];
  picture_.assign(shape.begin() + 1, shape.end());
  row_bytes_ = dtype_size(dtype_);
  for (const int64_t size : picture_) row_bytes_ *= static_cast<uint64_t>(size);  // within the file, so no overflow
}

void ArraySource::take_labels(const Stored& stored) {
  if (stored.shape.size() != 1 || stored.shape[0] != rows_)
    array_error(name_, "its labels have the shape " + shape_words(stored.shape) + "; expected [" +
                           std::to_string(rows_) + "], one for each picture.");
  if (stored.dtype != Dtype::I64 && stored.dtype != Dtype::I32 && stored.dtype != Dtype::U8)
    array_error(name_, "its labels are " + std::string(dtype_name(stored.dtype)) + "; expected whole numbers.");
  const size_t size = dtype_size(stored.dtype), count = static_cast<size_t>(rows_);
  std::vector<std::byte> bytes(count * size);
  if (!stored.file.read_at(stored.begin, bytes)) array_error(name_, "its labels could not be read to their end.");
  labels_.resize(count);
  for (size_t i = 0; i < count; ++i) {
    int64_t label = 0;
    if (size == 8) {
      std::memcpy(&label, bytes.data() + 8 * i, 8);
    } else if (size == 4) {
      int32_t narrow = 0;
      std::memcpy(&narrow, bytes.data() + 4 * i, 4);
      label = narrow;
    } else {
      label = static_cast<int64_t>(bytes[i]);
    }
    if (label < 0)
      array_error(name_, "the label of picture " + std::to_string(i) + " is " + std::to_string(label) +
                             "; labels are numbered from 0.");
    labels_[i] = label;
  }
}

ArraySource::ArraySource(const std::filesystem::path& path) : name_(path.string()) {
  if (to_lower(path.extension().string()) == ".npy") {
    take_pictures(open_npy(path));
    take_labels(open_npy(labels_beside(path)));
  } else {
    take_pictures(open_tensor(path, {"images", "image"}));
    take_labels(open_tensor(path, {"labels", "label"}));
  }
  fingerprint_ = mix_key(hash64(shape_words(picture_), static_cast<uint64_t>(dtype_)), file_.size());
  fingerprint_ = mix_key(fingerprint_, static_cast<uint64_t>(file_.mtime_ns()));
  for (const int64_t label : labels_) fingerprint_ = mix_key(fingerprint_, static_cast<uint64_t>(label));
}

ReadResult ArraySource::read(int64_t index, measure::StageClock::Slot& slot) const {
  const measure::StageScope scope(slot, measure::Stage::Read);
  if (!charge_memory(4 * row_bytes_)) return BadSample{name(index), too_large_text()};
  Array stored = Array::empty(dtype_, picture_);
  if (!file_.read_at(begin_ + static_cast<uint64_t>(index) * row_bytes_,
                     {static_cast<std::byte*>(stored.data()), stored.num_bytes()}))
    return BadSample{name(index), "The file could not be read to its end."};
  count_bytes(slot, stored.num_bytes());
  Sample sample;
  if (floats()) {
    for (const float value : stored.as<float>())
      if (!std::isfinite(value)) return BadSample{name(index), "It holds values that are not finite."};
    sample.set("image", std::move(stored));
  } else if (picture_.size() == 3 && picture_[2] == 3) {
    sample.set("image", std::move(stored));
  } else {
    Array tripled = Array::empty(Dtype::U8, {picture_[0], picture_[1], 3});
    uint8_t* to = tripled.as<uint8_t>().data();
    for (const uint8_t value : stored.as<uint8_t>()) to = std::fill_n(to, 3, value);
    sample.set("image", std::move(tripled));
  }
  Array label = Array::empty(Dtype::I64, {});
  label.as<int64_t>()[0] = labels_[static_cast<size_t>(index)];
  sample.set("label", std::move(label));
  return sample;
}

}  // namespace redline::data
