// Vector and matrix units of the CPU that the operating system has switched on. A unit counts only when both agree:
// AVX-512 without saved registers would crash.
#pragma once

#include <cstdint>
#include <string>

namespace redline::device {

struct CpuFeatures {
  bool avx2 = false, avx512f = false, avx512_bf16 = false, avx512_fp16 = false, amx_bf16 = false, amx_int8 = false;
};

// What CPUID answers, as plain numbers, so that the decoding is a table test.
struct CpuidWords {
  uint32_t leaf1_ecx = 0;
  uint32_t leaf7_ebx = 0, leaf7_edx = 0;  // leaf 7, sub-leaf 0
  uint32_t leaf7_1_eax = 0;               // leaf 7, sub-leaf 1
  uint64_t xcr0 = 0;                      // register states the operating system saves; 0 without OSXSAVE
};
CpuFeatures decode_cpuid(const CpuidWords& words);

CpuFeatures cpu_features();
std::string cpu_model();

}  // namespace redline::device
