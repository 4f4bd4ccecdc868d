// The number format a job computes in: one type for what a recipe names, what autocast switches on and whose measured
// rate counts. Weights stay in fp32 in all of them.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "core/machine_facts.h"

namespace redline {

enum class Precision : uint8_t { Fp32, Bf16Mixed, Fp16Mixed };

const char* precision_name(Precision precision);  // "32-true", "bf16-mixed", "16-mixed"
const char* number_name(Precision precision);     // of what the operators compute in: "fp32", "bf16", "fp16"
// By its name, Lightning's short forms ("32", "bf16", "16") and the formats' own ("fp32", "float16", "bfloat16").
std::optional<Precision> parse_precision(std::string_view text);

// Of matrix products in this precision; 0 when it was not measured.
double matrix_gflops(const MachineFacts& machine, Precision precision);

}  // namespace redline
