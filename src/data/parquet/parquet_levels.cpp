#include "data/parquet/parquet_levels.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>

#include "core/error.h"

namespace redline::data::parquet_rows {

namespace {

constexpr int64_t kTrustedRows = 1 << 20;

[[noreturn]] void damaged(const char* what) { throw DataError(std::string("its levels are damaged: ") + what); }

// Eight one-bit levels per byte: the form almost every list column uses for its repetition levels.
constexpr std::array<std::array<uint8_t, 8>, 256> make_bit_table() {
  std::array<std::array<uint8_t, 8>, 256> table{};
  for (size_t byte = 0; byte < 256; ++byte)
    for (size_t bit = 0; bit < 8; ++bit) table[byte][bit] = static_cast<uint8_t>(byte >> bit & 1);
  return table;
}
constexpr auto kBitTable = make_bit_table();

uint32_t read_varint(std::span<const uint8_t>& bytes) {
  uint32_t value = 0;
  for (int shift = 0; shift < 32; shift += 7) {
    if (bytes.empty()) damaged("a run header is cut off");
    const uint8_t byte = bytes.front();
    bytes = bytes.subspan(1);
    value |= static_cast<uint32_t>(byte & 0x7F) << shift;
    if ((byte & 0x80) == 0) return value;
  }
  damaged("a run header is too long");
}

// `count` values of `bits` bits, lowest first. bits is 1 to 8.
void unpack(const uint8_t* bytes, int bits, int64_t count, uint8_t* out) {
  int64_t i = 0;
  if (bits == 1) {
    for (; i + 8 <= count; i += 8) std::memcpy(out + i, kBitTable[bytes[i / 8]].data(), 8);
  }
  const auto mask = static_cast<uint8_t>((1u << bits) - 1);
  for (; i < count; ++i) {
    const int64_t at = i * bits;
    unsigned window = bytes[at / 8];
    if (at % 8 + bits > 8) window |= static_cast<unsigned>(bytes[at / 8 + 1]) << 8;
    out[i] = static_cast<uint8_t>(window >> (at % 8)) & mask;
  }
}

bool all_equal(std::span<const uint8_t> levels, int value) {
  uint8_t different = 0;
  for (const uint8_t level : levels) different |= static_cast<uint8_t>(level ^ value);
  return different == 0;
}

}  // namespace

int level_bits(int max_level) { return static_cast<int>(std::bit_width(static_cast<unsigned>(max_level))); }

void decode_levels(std::span<const uint8_t> bytes, int max_level, int64_t count, uint8_t* out) {
  if (max_level == 0) {
    std::memset(out, 0, static_cast<size_t>(count));
    return;
  }
  const int bits = level_bits(max_level);
  if (bits > 8) damaged("they are nested too deeply");
  int64_t done = 0;
  while (done < count) {
    const uint32_t header = read_varint(bytes);
    const int64_t left = count - done;
    if ((header & 1) == 0) {
      const int64_t run = std::min<int64_t>(header >> 1, left);
      if (run == 0) damaged("a run is empty");
      if (bytes.empty()) damaged("a run is cut off");
      std::memset(out + done, bytes.front(), static_cast<size_t>(run));
      if (bytes.front() > max_level) damaged("a level is too high");
      bytes = bytes.subspan(1);
      done += run;
      continue;
    }
    const int64_t groups = header >> 1;
    if (groups == 0) damaged("a run is empty");
    // Writers may cut the padding of the last group.
    const int64_t run = std::min(groups * 8, left);
    const int64_t needed = (run * bits + 7) / 8;
    if (needed > static_cast<int64_t>(bytes.size())) damaged("a run is cut off");
    unpack(bytes.data(), bits, run, out + done);
    bytes = bytes.subspan(std::min(bytes.size(), static_cast<size_t>(groups * bits)));
    done += run;
  }
  if (std::has_single_bit(static_cast<unsigned>(max_level) + 1)) return;  // every pattern of bits is a valid level
  if (std::any_of(out, out + count, [&](uint8_t level) { return level > max_level; })) damaged("a level is too high");
}

ListRows::ListRows(ListLevels levels, int64_t expected_rows) : levels_(levels), expected_rows_(expected_rows) {
  // The footer's word is not enough to take memory: the rest comes as pages arrive.
  offsets_.reserve(static_cast<size_t>(std::min(expected_rows, kTrustedRows)) + 1);
}

void ListRows::start_row(int64_t element) {
  if (row_ == expected_rows_) damaged("there are more rows than the footer says");
  if (element > UINT32_MAX) damaged("a row group holds more than 4294967295 elements");
  offsets_.push_back(static_cast<uint32_t>(element));
  ++row_;
}

void ListRows::set_problem(RowProblem problem) {
  problems_.resize(static_cast<size_t>(row_), static_cast<uint8_t>(RowProblem::None));
  problems_.back() = static_cast<uint8_t>(problem);
}

int64_t ListRows::add_page(std::span<const uint8_t> rep, std::span<const uint8_t> def) {
  page_nulls_ = false;
  if (rep.empty()) return 0;
  if (row_ == 0 && rep[0] != 0) damaged("the first row has no beginning");
  if (!all_equal(def, levels_.max_def)) return add_page_slowly(rep, def);
  // Every element exists: rows begin where the repetition level is 0.
  const uint8_t* const begin = rep.data();
  const uint8_t* const end = begin + rep.size();
  for (const uint8_t* at = begin; at < end; ++at) {
    at = static_cast<const uint8_t*>(std::memchr(at, 0, static_cast<size_t>(end - at)));
    if (at == nullptr) break;
    start_row(elements_ + (at - begin));
  }
  elements_ += static_cast<int64_t>(rep.size());
  return static_cast<int64_t>(rep.size());
}

int64_t ListRows::add_page_slowly(std::span<const uint8_t> rep, std::span<const uint8_t> def) {
  int64_t values = 0;
  for (size_t i = 0; i < rep.size(); ++i) {
    const int level = def[i];
    if (rep[i] == 0) start_row(elements_);
    if (level < levels_.repeated_def) {
      if (rep[i] != 0) damaged("an empty list goes on");
      if (level < levels_.repeated_def - 1) set_problem(RowProblem::NullList);
      continue;
    }
    ++elements_;
    if (level == levels_.max_def) {
      ++values;
    } else {
      page_nulls_ = true;
      set_problem(RowProblem::NullElement);
    }
  }
  return values;
}

void ListRows::finish() {
  if (row_ != expected_rows_) damaged("there are fewer rows than the footer says");
  if (elements_ > UINT32_MAX) damaged("a row group holds more than 4294967295 elements");
  offsets_.push_back(static_cast<uint32_t>(elements_));
  if (!problems_.empty()) problems_.resize(static_cast<size_t>(expected_rows_), static_cast<uint8_t>(RowProblem::None));
}

}  // namespace redline::data::parquet_rows
