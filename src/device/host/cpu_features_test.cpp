#include "device/host/cpu_features.h"

#include <gtest/gtest.h>

namespace redline::device {
namespace {

constexpr uint64_t kAll = 0x600e6;  // SSE, AVX, AVX-512 and tile registers saved
constexpr uint32_t kAvx2 = 1U << 5, kAvx512f = 1U << 16, kAmxBf16 = 1U << 22, kFp16 = 1U << 23, kTile = 1U << 24,
                   kAmxInt8 = 1U << 25;
constexpr uint32_t kBf16 = 1U << 5;

struct Case {
  const char* name;
  CpuidWords words;
  bool avx2, avx512f, bf16, fp16, amx_bf16, amx_int8;
};

TEST(CpuFeatures, DecodesCpuid) {
  const Case cases[] = {
      {"nothing", {}, false, false, false, false, false, false},
      {"desktop with AVX2", {0, kAvx2, 0, 0, 0x6}, true, false, false, false, false, false},
      {"AVX-512 without bf16", {0, kAvx2 | kAvx512f, 0, 0, kAll}, true, true, false, false, false, false},
      {"everything",
       {0, kAvx2 | kAvx512f, kAmxBf16 | kFp16 | kTile | kAmxInt8, kBf16, kAll},
       true,
       true,
       true,
       true,
       true,
       true},
      {"CPU has all, system saves only SSE",
       {0, kAvx2 | kAvx512f, kAmxBf16 | kFp16 | kTile, kBf16, 0x2},
       false,
       false,
       false,
       false,
       false,
       false},
      {"no AVX-512 state, so no bf16 either",
       {0, kAvx2 | kAvx512f, kFp16, kBf16, 0x6},
       true,
       false,
       false,
       false,
       false,
       false},
      {"AMX bits without the tile bit",
       {0, kAvx2 | kAvx512f, kAmxBf16, 0, kAll},
       true,
       true,
       false,
       false,
       false,
       false},
  };
  for (const Case& c : cases) {
    const CpuFeatures got = decode_cpuid(c.words);
    EXPECT_EQ(got.avx2, c.avx2) << c.name;
    EXPECT_EQ(got.avx512f, c.avx512f) << c.name;
    EXPECT_EQ(got.avx512_bf16, c.bf16) << c.name;
    EXPECT_EQ(got.avx512_fp16, c.fp16) << c.name;
    EXPECT_EQ(got.amx_bf16, c.amx_bf16) << c.name;
    EXPECT_EQ(got.amx_int8, c.amx_int8) << c.name;
  }
}

#if defined(__x86_64__)
TEST(CpuFeatures, AgreesWithTheCompilersOwnCheck) {
  __builtin_cpu_init();
  const CpuFeatures here = cpu_features();
  EXPECT_EQ(here.avx2, __builtin_cpu_supports("avx2") != 0);
  EXPECT_EQ(here.avx512f, __builtin_cpu_supports("avx512f") != 0);
  EXPECT_EQ(here.avx512_bf16, __builtin_cpu_supports("avx512bf16") != 0);
  EXPECT_FALSE(cpu_model().empty());
}
#endif

}  // namespace
}  // namespace redline::device
