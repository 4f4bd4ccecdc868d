#include "tune/trials/same_turns.h"

#include <algorithm>
#include <cmath>

namespace redline::tune {

std::array<TurnStart, 2> same_turns(const std::array<TurnSide, 2>& sides, double samples) {
  // Steps are multiples of each other in practice; where they are not, the smaller comes as near as it can.
  const double unit = std::max(sides[0].samples_per_step, sides[1].samples_per_step);
  const double turn = unit * std::max(1.0, std::round(samples / unit));
  const int64_t epoch = std::max(sides[0].epoch, sides[1].epoch);
  double begin = 0;
  for (const TurnSide& side : sides)
    if (side.epoch == epoch) begin = std::max(begin, static_cast<double>(side.step) * side.samples_per_step);
  begin = unit * std::ceil(begin / unit - 1e-9);
  std::array<TurnStart, 2> starts;
  bool ended = false;
  for (size_t i = 0; i < 2; ++i) {
    const TurnSide& side = sides[i];
    starts[i] = {epoch, std::llround(begin / side.samples_per_step),
                 std::max<int64_t>(1, std::llround(turn / side.samples_per_step))};
    ended = ended || starts[i].step >= side.steps_per_epoch;
  }
  if (ended)
    for (TurnStart& start : starts) start.epoch = epoch + 1, start.step = 0;
  return starts;
}

}  // namespace redline::tune
