// Bits: Intel 64 and IA-32 Architectures Software Developer's Manual, volume 2A, CPUID; XCR0 in volume 1, chapter 13.
#include "device/host/cpu_features.h"

#if defined(__x86_64__)
#include <cpuid.h>
#endif

#include <cstring>

#include "core/strings.h"
#include "device/host/proc_text.h"

namespace redline::device {
namespace {

bool bit(uint64_t word, int index) { return ((word >> index) & 1) != 0; }

#if defined(__x86_64__)
CpuidWords read_cpuid() {
  CpuidWords words;
  uint32_t a = 0, b = 0, c = 0, d = 0;
  if (__get_cpuid(1, &a, &b, &c, &d) != 0) words.leaf1_ecx = c;
  if (__get_cpuid_count(7, 0, &a, &b, &c, &d) != 0) {
    words.leaf7_ebx = b;
    words.leaf7_edx = d;
    const uint32_t largest_subleaf = a;
    if (largest_subleaf >= 1 && __get_cpuid_count(7, 1, &a, &b, &c, &d) != 0) words.leaf7_1_eax = a;
  }
  constexpr int kOsxsave = 27;
  if (bit(words.leaf1_ecx, kOsxsave)) {
    uint32_t low = 0, high = 0;
    __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    words.xcr0 = (uint64_t{high} << 32) | low;
  }
  return words;
}

std::string brand_string() {
  uint32_t registers[12] = {};
  for (uint32_t part = 0; part < 3; ++part) {
    uint32_t* r = registers + 4 * part;
    if (__get_cpuid(0x80000002U + part, r, r + 1, r + 2, r + 3) == 0) return {};
  }
  char text[sizeof(registers) + 1] = {};
  std::memcpy(text, registers, sizeof(registers));
  return trim(text);
}
#else
CpuidWords read_cpuid() { return {}; }
std::string brand_string() { return {}; }
#endif

}  // namespace

CpuFeatures decode_cpuid(const CpuidWords& words) {
  constexpr uint64_t kYmm = 0x6, kZmm = 0xe6, kTiles = 0x60000;  // XCR0: SSE+AVX; and opmask+ZMM; tile config and data
  const bool ymm = (words.xcr0 & kYmm) == kYmm;
  const bool zmm = (words.xcr0 & kZmm) == kZmm;
  const bool tiles = (words.xcr0 & kTiles) == kTiles;
  CpuFeatures found;
  found.avx2 = ymm && bit(words.leaf7_ebx, 5);
  found.avx512f = zmm && bit(words.leaf7_ebx, 16);
  found.avx512_bf16 = found.avx512f && bit(words.leaf7_1_eax, 5);
  found.avx512_fp16 = found.avx512f && bit(words.leaf7_edx, 23);
  const bool amx = tiles && bit(words.leaf7_edx, 24);
  found.amx_bf16 = amx && bit(words.leaf7_edx, 22);
  found.amx_int8 = amx && bit(words.leaf7_edx, 25);
  return found;
}

CpuFeatures cpu_features() { return decode_cpuid(read_cpuid()); }

std::string cpu_model() {
  std::string model = brand_string();
  if (!model.empty()) return model;
  for (const std::string& line : split(proc_text("/proc/cpuinfo"), '\n')) {
    const auto colon = line.find(':');
    if (starts_with(line, "model name") && colon != std::string::npos) return trim(line.substr(colon + 1));
  }
  return "unknown";
}

}  // namespace redline::device
