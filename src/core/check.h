// REDLINE_CHECK(condition, "why this must hold"): throws InternalError with the place. For our own mistakes only;
// what a user can cause is thrown by meaning (core/error.h). The prefix keeps clear of LibTorch's CHECK.
#pragma once

#include <string_view>

namespace redline {
[[noreturn]] void check_failed(const char* condition, std::string_view why, const char* file, int line);
}  // namespace redline

#define REDLINE_CHECK(condition, why)                                               \
  do {                                                                              \
    if (!(condition)) ::redline::check_failed(#condition, why, __FILE__, __LINE__); \
  } while (false)
