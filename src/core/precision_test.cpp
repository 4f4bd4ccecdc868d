#include "core/precision.h"

#include <gtest/gtest.h>

namespace redline {
namespace {

TEST(Precision, NamesComeBack) {
  for (const Precision precision : {Precision::Fp32, Precision::Bf16Mixed, Precision::Fp16Mixed}) {
    EXPECT_EQ(parse_precision(precision_name(precision)), precision);
    EXPECT_EQ(parse_precision(number_name(precision)), precision);
  }
  EXPECT_STREQ(precision_name(Precision::Fp16Mixed), "16-mixed");
  EXPECT_STREQ(number_name(Precision::Bf16Mixed), "bf16");
}

TEST(Precision, TakesOtherWordsInAnyCaseAndNothingElse) {
  EXPECT_EQ(parse_precision("32"), Precision::Fp32);
  EXPECT_EQ(parse_precision("Float32"), Precision::Fp32);
  EXPECT_EQ(parse_precision("BF16"), Precision::Bf16Mixed);
  EXPECT_EQ(parse_precision("bfloat16"), Precision::Bf16Mixed);
  EXPECT_EQ(parse_precision("16"), Precision::Fp16Mixed);
  for (const char* word : {"", "64", "16-true", "bf16-true", "mixed", "auto"})
    EXPECT_FALSE(parse_precision(word)) << word;
}

TEST(Precision, EachHasItsOwnRate) {
  MachineFacts machine;
  machine.gemm_fp32_gflops = 1;
  machine.gemm_bf16_gflops = 2;
  machine.gemm_fp16_gflops = 3;
  EXPECT_EQ(matrix_gflops(machine, Precision::Fp32), 1);
  EXPECT_EQ(matrix_gflops(machine, Precision::Bf16Mixed), 2);
  EXPECT_EQ(matrix_gflops(machine, Precision::Fp16Mixed), 3);
}

TEST(RankFacts, SharesTheHost) {
  MachineFacts machine;
  machine.allowed_cpus = 7;
  machine.memory_limit_bytes = 900;
  EXPECT_EQ(machine.cpus_of_rank(), 7);
  machine.ranks.per_host = 3;
  EXPECT_EQ(machine.cpus_of_rank(), 2);
  EXPECT_EQ(machine.memory_of_rank_bytes(), 300u);
  machine.ranks.per_host = 16;
  EXPECT_EQ(machine.cpus_of_rank(), 1);
}

}  // namespace
}  // namespace redline
