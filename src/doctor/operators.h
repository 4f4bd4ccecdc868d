// One kind of operator within a step, as a report shows it.
#pragma once

#include <cstdint>
#include <string>

namespace redline::doctor {

struct OperatorLine {
  std::string name;
  int64_t calls = 0;
  double seconds = 0, share = 0;  // of the step, and of all operators' time
  double share_of_peak = -1;      // of the machine's measured rate of matrix products; negative = not known
  std::string number;             // what its result is in: "fp32", "bf16", "fp16"; empty: nothing that has a precision
  bool fell_back = false;         // in fp32 although the job runs in less
};

}  // namespace redline::doctor
