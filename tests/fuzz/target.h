// A parser under test: fed bytes that may be anything, it must return. What it finds wrong with the bytes is its own
// affair; what counts here is that it neither reads nor writes where it must not (AddressSanitizer), computes nonsense
// (UBSan), takes unbounded memory or time, nor accepts a file and then breaks what it promises (require()).
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <span>
#include <string>
#include <vector>

namespace redline::fuzz {

struct Target {
  std::string name;
  // As LLVMFuzzerTestOneInput. Returns true when the bytes were accepted, so that a run can tell whether mutations
  // reach both sides.
  std::function<bool(std::span<const std::byte>)> run;
  std::function<std::vector<std::string>()> seeds;
  // Makes checksums right again after a mutation, or the parser would never look further; may be empty.
  std::function<void(std::string&)> repair;
};

inline void require(bool condition, const char* what) {
  if (condition) return;
  std::fprintf(stderr, "promise broken: %s\n", what);
  std::abort();
}

std::vector<Target> audio_targets();
std::vector<Target> image_targets();
std::vector<Target> tar_targets();
std::vector<Target> parquet_targets();
std::vector<Target> text_targets();
std::vector<Target> planted_targets();

}  // namespace redline::fuzz
