#include "core/precision.h"

#include "core/strings.h"

namespace redline {

namespace {

struct PrecisionRow {
  Precision precision;
  const char *name, *number;
  std::initializer_list<std::string_view> other_words;
  double MachineFacts::*gflops;
};

const PrecisionRow kPrecisions[] = {
    {Precision::Fp32, "32-true", "fp32", {"32", "float32"}, &MachineFacts::gemm_fp32_gflops},
    {Precision::Bf16Mixed, "bf16-mixed", "bf16", {"bfloat16"}, &MachineFacts::gemm_bf16_gflops},
    {Precision::Fp16Mixed, "16-mixed", "fp16", {"16", "float16"}, &MachineFacts::gemm_fp16_gflops},
};

const PrecisionRow& row_of(Precision precision) { return kPrecisions[static_cast<size_t>(precision)]; }

}  // namespace

const char* precision_name(Precision precision) { return row_of(precision).name; }

const char* number_name(Precision precision) { return row_of(precision).number; }

std::optional<Precision> parse_precision(std::string_view text) {
  const std::string word = to_lower(std::string(text));
  for (const PrecisionRow& row : kPrecisions) {
    if (word == row.name || word == row.number) return row.precision;
    for (const std::string_view other : row.other_words)
      if (word == other) return row.precision;
  }
  return std::nullopt;
}

double matrix_gflops(const MachineFacts& machine, Precision precision) { return machine.*row_of(precision).gflops; }

}  // namespace redline
