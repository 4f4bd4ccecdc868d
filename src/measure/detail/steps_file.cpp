// Values are copied field by field, never as a struct, so that padding and compilers do not shape the format.
#include "measure/detail/steps_file.h"

#include <fmt/format.h>

#include <bit>
#include <cstring>
#include <span>

#include "core/check.h"
#include "core/error.h"
#include "core/hash.h"
#include "core/strings.h"

namespace redline::measure {
namespace {

constexpr std::string_view kStepsMagic = "RLSTEPS\n";

uint32_t checksum(std::string_view bytes) { return crc32c(std::as_bytes(std::span(bytes.data(), bytes.size()))); }

class ByteWriter {
 public:
  explicit ByteWriter(std::string& out) : out_(out) {}
  template <class T>
  void put(T value) {
    static_assert(std::endian::native == std::endian::little, "the format is little-endian");
    char bytes[sizeof(T)];
    std::memcpy(bytes, &value, sizeof(T));
    out_.append(bytes, sizeof(T));
  }

 private:
  std::string& out_;
};

class ByteReader {
 public:
  explicit ByteReader(std::string_view bytes) : bytes_(bytes) {}
  template <class T>
  void get(T& value) {
    REDLINE_CHECK(place_ + sizeof(T) <= bytes_.size(), "rows and headers have fixed sizes, checked before");
    std::memcpy(&value, bytes_.data() + place_, sizeof(T));
    place_ += sizeof(T);
  }

 private:
  std::string_view bytes_;
  size_t place_ = 0;
};

// One list of the fields serves writing and reading.
template <class Row, class Visit>
void visit_step(Row& row, Visit visit) {
  visit(row.step);
  visit(row.epoch);
  visit(row.begin_ns);
  visit(row.wall_ns);
  for (auto& ns : row.phase_ns) visit(ns);
  for (auto& ns : row.stage_ns) visit(ns);
  visit(row.samples);
  visit(row.micro_batches);
  visit(row.items);
  visit(row.padded_items);
  visit(row.live_bytes);
  visit(row.peak_bytes);
  visit(row.rss_bytes);
  visit(row.loss);
  visit(row.learning_rate);
  visit(row.grad_norm);
  visit(row.flags);
}

std::optional<StepRow> decode_step(std::string_view bytes) {
  uint32_t stored = 0;
  ByteReader(bytes.substr(kStepRowBytes - 4)).get(stored);
  if (checksum(bytes.substr(0, kStepRowBytes - 4)) != stored) return std::nullopt;
  StepRow row;
  ByteReader reader(bytes);
  visit_step(row, [&](auto& value) { reader.get(value); });
  return row;
}

// Returns false when the header is damaged: rows carry their own checksums, so they are read as the version we know.
bool check_header(std::string_view header, const std::string& name) {
  uint32_t stored = 0;
  ByteReader(header.substr(kStepsHeaderBytes - 4)).get(stored);
  if (checksum(header.substr(0, kStepsHeaderBytes - 4)) != stored) return false;
  uint32_t version = 0, row_bytes = 0;
  ByteReader reader(header.substr(kStepsMagic.size()));
  reader.get(version);
  reader.get(row_bytes);
  if (!header.starts_with(kStepsMagic)) {
    throw DataError("'" + printable(name) + "' is not a redline step file: its first bytes are not RLSTEPS.");
  }
  if (version != kRunRecordVersion || row_bytes != kStepRowBytes) {
    throw DataError(fmt::format(
        "'{}' has version {} of the step format, this redline reads version {}; use the redline that wrote it.",
        printable(name), version, kRunRecordVersion));
  }
  return true;
}

}  // namespace

std::string encode_steps_header() {
  std::string header(kStepsMagic);
  ByteWriter writer(header);
  writer.put(uint32_t{kRunRecordVersion});
  writer.put(static_cast<uint32_t>(kStepRowBytes));
  writer.put(static_cast<uint32_t>(kNumPhases));
  writer.put(static_cast<uint32_t>(kNumStages));
  header.resize(kStepsHeaderBytes - 4, '\0');
  writer.put(checksum(header));
  return header;
}

void encode_step(const StepRow& row, std::string& out) {
  const size_t begin = out.size();
  ByteWriter writer(out);
  visit_step(row, [&](const auto& value) { writer.put(value); });
  writer.put(checksum(std::string_view(out).substr(begin)));
  REDLINE_CHECK(out.size() - begin == kStepRowBytes, "the format says how long a row is");
}

StepsContent decode_steps(std::string_view bytes, const std::string& name) {
  StepsContent content;
  const std::string shown = printable(name);
  if (bytes.size() < kStepsHeaderBytes) {
    if (!bytes.empty() && !kStepsMagic.starts_with(bytes.substr(0, kStepsMagic.size()))) {
      throw DataError("'" + shown + "' is not a redline step file: its first bytes are not RLSTEPS.");
    }
    content.warnings.push_back(fmt::format("{}: the header is torn ({} of {} bytes); no step could be read", shown,
                                           bytes.size(), kStepsHeaderBytes));
    return content;
  }
  if (!check_header(bytes.substr(0, kStepsHeaderBytes), name)) {
    content.warnings.push_back(
        fmt::format("{}: the header is damaged; its rows are read as version {}", shown, kRunRecordVersion));
  }
  content.good_bytes = kStepsHeaderBytes;
  const size_t whole_rows = (bytes.size() - kStepsHeaderBytes) / kStepRowBytes;
  std::vector<size_t> bad;
  for (size_t i = 0; i < whole_rows; ++i) {
    const size_t at = kStepsHeaderBytes + i * kStepRowBytes;
    if (auto row = decode_step(bytes.substr(at, kStepRowBytes))) {
      for (size_t index : bad)
        content.warnings.push_back(fmt::format("{}: row {} is damaged and was left out", shown, index));
      bad.clear();
      content.rows.push_back(*row);
      content.good_bytes = static_cast<int64_t>(at + kStepRowBytes);
    } else {
      bad.push_back(i);
    }
  }
  if (content.rows.empty() && !bytes.starts_with(kStepsMagic)) {
    throw DataError("'" + shown +
                    "' is not a redline step file: its first bytes are not RLSTEPS and no row's checksum holds.");
  }
  const size_t torn = bytes.size() - static_cast<size_t>(content.good_bytes);
  if (torn > 0) content.warnings.push_back(fmt::format("{}: {} bytes of a torn row dropped", shown, torn));
  return content;
}

std::vector<StepRow> without_repeats(const std::vector<StepRow>& rows) {
  std::vector<StepRow> kept;
  kept.reserve(rows.size());
  for (const StepRow& row : rows) {
    while (!kept.empty() && kept.back().step >= row.step) kept.pop_back();
    kept.push_back(row);
  }
  return kept;
}

}  // namespace redline::measure
