#include "device/precision_choice.h"

#include <fmt/format.h>

#include "device/machine.h"

namespace redline::device {

// Why the units and not measured rates: a rate measured beside a busy neighbour is an accident (fp32 was once seen at a
// thousandth of its speed, and fp16 without units "won"), and what a job computes must not depend on accidents. A
// rate that can be trusted never contradicts the units by much: without them a half is widened, multiplied as fp32 and
// narrowed again. So the choice needs no benchmark, and the same job is the same job at every start.
PrecisionChoice choose_precision(Precision asked, bool strict, const MachineFacts& facts, bool on_cpu) {
  PrecisionChoice choice{asked, ""};
  if (!on_cpu || asked == Precision::Fp32) return choice;
  const bool half = asked == Precision::Fp16Mixed;
  if (half ? has_fp16_units(facts) : has_bf16_units(facts)) return choice;
  const std::string lacking = fmt::format("this processor has no {} units", half ? "fp16" : "bf16");
  if (half && !strict) {
    choice.precision = has_bf16_units(facts) ? Precision::Bf16Mixed : Precision::Fp32;
    choice.warning =
        fmt::format("precision 16-mixed became {}: {}{} (trainer.precision_strict: true runs it as asked).",
                    precision_name(choice.precision), lacking, has_bf16_units(facts) ? ", but bf16 units" : "");
  } else {
    choice.warning = fmt::format("precision {} is slower than 32-true here: {}.", precision_name(asked), lacking);
  }
  return choice;
}

}  // namespace redline::device
