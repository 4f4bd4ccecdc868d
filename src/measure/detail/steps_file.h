// steps.bin: a 64-byte header and rows of 232 bytes, little-endian, each row with its own CRC32C. Fixed size and
// checksum make a torn or damaged row visible and every other row readable. Byte by byte in docs/formats.md.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "measure/run_record.h"

namespace redline::measure {

inline constexpr size_t kStepsHeaderBytes = 64;
inline constexpr size_t kStepRowBytes = 232;

std::string encode_steps_header();
// Appends kStepRowBytes to `out`.
void encode_step(const StepRow& row, std::string& out);

struct StepsContent {
  std::vector<StepRow> rows;  // every row whose checksum holds, in file order
  int64_t good_bytes = 0;     // up to the end of the last good row: where a writer continues
  std::vector<std::string> warnings;
};
// Throws DataError for a file of another kind or of a version we do not know. A torn header or tail is a warning.
StepsContent decode_steps(std::string_view bytes, const std::string& name);

// Later rows win: a resumed run repeats the steps after its checkpoint.
std::vector<StepRow> without_repeats(const std::vector<StepRow>& rows);

}  // namespace redline::measure
