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
};

}  // namespace redline::doctor
